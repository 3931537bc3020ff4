"""Matrix products that are reshaped to a scalar, on which OpenVINO's compiler crashes."""

import pytest
import torch
import torch.nn.functional as F

from targets.graphs import island_of
from torchport.targets import find

OPENVINO = find("openvino")
OPTIONS = OPENVINO.make_options({})


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda a, b: (a @ b).view(()), [(1, 3), (3, 1)]),
        (lambda a, b: (a @ b).relu().view(1).view(()).expand(3), [(1, 3), (3, 1)]),
        (lambda a, b: F.linear(a, b).view(()) + 1, [(1, 1, 3), (1, 3)]),
        (lambda a, b: torch.bmm(a.view(1, 1, 12), b.view(1, 12, 1)).view(()), [(3, 4), (3, 4)]),
    ],
    ids=["product", "relu", "linear", "einsum"],
)
def test_a_product_reshaped_to_a_scalar(function, shapes):
    args = [torch.rand(shape) for shape in shapes]
    island = island_of(function, *args)
    [result] = OPENVINO.load(OPENVINO.build(island, OPTIONS), island.inputs, island.outputs, OPTIONS)(args)
    torch.testing.assert_close(result, function(*args))

"""Norms of many dimensions in half precision: no mean may be rounded before it is subtracted."""

import pytest
import torch
import torch.nn.functional as F

import torchport
from targets.graphs import island_of
from torchport.targets import find
from torchport.targets.openvino.library import core, openvino
from torchport.targets.openvino.load import parts_of
from torchport.verification import HALVES, coarsest_step, half_difference

OPENVINO = find("openvino")
OPTIONS = {"cache": False, "speed_trial": False}
BOTH = pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
CASES = pytest.mark.parametrize(
    ("shape", "normalised", "flat"),
    [
        ((2, 3, 4, 8), 1, [24, 8]),
        ((1, 2, 3, 2, 8), 2, [6, 16]),
        ((3, 8), 2, [1, 24]),
        ((2, 3, 8), 1, [2, 3, 8]),
        ((2, 3, 8), 2, [2, 3, 8]),
    ],
)


def norm(count, weight=None):
    return lambda x: F.layer_norm(x, x.shape[-count:], weight if weight is None else weight.to(x.dtype))


def far_from_0(shape, dtype):
    return (torch.randn(shape) * 0.1 + 5).to(dtype)


def check(compiled, function, x):
    assert compiled.coverage.complete
    actual, eager, exact = compiled(x), function(x), function(x.double())
    assert half_difference(actual, eager, exact, step=coarsest_step([x.dtype])) == ""
    assert compiled.fallbacks.fallbacks == 0


@BOTH
@CASES
def test_numbers_far_from_0(shape, normalised, flat, dtype):
    torch.manual_seed(0)
    function = norm(normalised, torch.randn(shape[-normalised:]).to(dtype))
    compiled = torchport.compile(function, (torch.randn(shape).to(dtype),), options=OPTIONS)
    check(compiled, function, far_from_0(shape, dtype))


@BOTH
@CASES
def test_the_kernel_for_rows_is_asked_for(shape, normalised, flat, dtype):
    """Whether or not this processor rounds the mean."""
    island = island_of(norm(normalised), torch.randn(shape).to(dtype))
    xml, weights = parts_of(OPENVINO.build(island, OPENVINO.make_options({})))
    model = core().read_model(xml, openvino().Tensor(weights, shared_memory=True))
    [found] = [node for node in model.get_ordered_ops() if node.get_type_name() == "MVN"]
    assert list(found.get_output_shape(0)) == flat


def test_open_sizes():
    torch.manual_seed(0)
    function, rows = norm(1), torch.export.Dim("rows", min=1, max=64)
    example = torch.randn(1, 5, 4, 8).bfloat16()
    compiled = torchport.compile(function, (example,), dynamic_shapes=({1: rows},), options=OPTIONS)
    for count in (1, 7, 64):
        check(compiled, function, far_from_0((1, count, 4, 8), torch.bfloat16))
    assert len(compiled.programs) == 1

"""Average pools that count their padding, on quantized numbers: the padding stands for 0."""

import pytest
import torch
import torch.nn.functional as F

import torchport
from targets.graphs import island_of
from torchport.targets import find
from torchport.targets.openvino.library import core, openvino
from torchport.targets.openvino.load import parts_of

OPENVINO = find("openvino")
STEP = 0.03
ZEROS = [(40, True), (-90, True), (0, False), (-128, False)]
ZERO_POINTS = pytest.mark.parametrize(("zero", "separate"), ZEROS)


def on_grid(x, zero):
    return torch.fake_quantize_per_tensor_affine(x, STEP, zero, -128, 127)


POOLS = {
    "1d": (lambda x: F.avg_pool1d(x.flatten(0, 1), 3, 1, 1), 0.0),
    "2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), 0.0),
    "3d": (lambda x: F.avg_pool3d(x[:, :, None], (1, 3, 5), 1, (0, 1, 2)), 0.0),
    "joined": (lambda x: F.avg_pool2d(torch.cat([x, x], 1), 3, 1, 1), 0.0),
    "before a convolution": (lambda x: F.conv2d(F.avg_pool2d(x, 3, 1, 1), torch.ones(2, 4, 1, 1)), 0.0),
    "border not counted": (lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), STEP),
}


@ZERO_POINTS
@pytest.mark.parametrize("name", POOLS)
def test_equals_eager(name, zero, separate):
    """Where OpenVINO pools in 8 bits, it rounds averages to the grid."""
    torch.manual_seed(0)
    pool, more = POOLS[name]
    x = torch.randn(2, 4, 9, 9)

    def model(x):
        return pool(on_grid(x, zero))

    options = {"cache": False, "speed_trial": False, "check": False}
    compiled = torchport.compile(model, (x,), options=options)
    assert compiled.coverage.complete
    room = 4 * STEP if more or not separate else 1e-5
    torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=room)


@ZERO_POINTS
def test_only_where_the_grid_is_shifted(zero, separate):
    """With other grids the pool still computes in 8 bits."""
    island = island_of(lambda x: F.avg_pool2d(on_grid(x, zero), 3, 1, 1), torch.randn(1, 4, 9, 9))
    xml, weights = parts_of(OPENVINO.build(island, OPENVINO.make_options({})))
    model = core().read_model(xml, openvino().Tensor(weights, shared_memory=True))
    assert ("Pad" in {node.get_type_name() for node in model.get_ordered_ops()}) is separate

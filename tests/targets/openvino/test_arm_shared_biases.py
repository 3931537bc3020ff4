"""An 8-bit product with a bias whose sum is read by several ops."""

import numpy
import pytest
import torch
from torch import nn

import torchport
from torchport.targets.openvino.arm_shared_biases import separate_shared_biases
from torchport.targets.openvino.library import core, openvino


def model_of(readers: int):
    opset = openvino().opset13
    x = opset.parameter([2, 4], numpy.float32)
    weight = opset.constant(numpy.arange(12, dtype=numpy.float32).reshape(4, 3) / 8)
    total = opset.add(
        opset.matmul(x, weight, False, False), opset.constant(numpy.ones((1, 3), numpy.float32))
    )
    return openvino().Model([opset.relu(total), opset.tanh(total)][:readers], [x])


@pytest.mark.parametrize("readers", [1, 2])
def test_the_results_stay_and_only_shared_sums_are_changed(readers: int) -> None:
    x = numpy.linspace(-1, 1, 8, dtype=numpy.float32).reshape(2, 4)
    model = model_of(readers)
    separate_shared_biases(model)
    kinds = [node.get_type_name() for node in model.get_ops()]
    assert kinds.count("Unsqueeze") == kinds.count("Squeeze") == readers - 1
    total = x @ (numpy.arange(12, dtype=numpy.float32).reshape(4, 3) / 8) + 1
    expected = [numpy.maximum(total, 0), numpy.tanh(total)][:readers]
    found = core().compile_model(model, "CPU")(x)
    for left, right in zip(found.values(), expected, strict=True):
        numpy.testing.assert_allclose(
            left, right, rtol=0, atol=0.05
        )  # the device may compute in half precision


class Residual(nn.Module):
    """A layer's result is quantized for the next layer, and also added to that layer's result."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the result and the intermediate value."""
        between = self.first(x)
        return self.second(between), torch.tanh(between)


def test_a_quantized_model_with_such_a_sum_is_built() -> None:
    torch.manual_seed(0)
    items = [torch.randn(4, 8) for _ in range(6)]
    quantized = torchport.quantize(Residual().eval(), items, speed=False)
    assert quantized.plan.count("int8") >= 2
    compiled = torchport.compile(quantized, (items[0],), options={"speed_trial": False})
    assert compiled.coverage.complete, compiled.coverage.stayed
    with torch.no_grad():
        for found, expected in zip(compiled(items[0]), quantized(items[0]), strict=True):
            assert torch.corrcoef(torch.stack([found.flatten(), expected.flatten()]))[0, 1] > 0.999

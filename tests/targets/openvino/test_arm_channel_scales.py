"""8-bit products with per-channel scales, in models that OpenVINO compiles without snippets."""

import numpy
import pytest
import torch
from torch import nn

import torchport
from torchport.quantization import AccuracyBudget
from torchport.targets.openvino.arm_channel_scales import separate_channel_scales
from torchport.targets.openvino.library import core, openvino

SCALES = numpy.logspace(-2, 0, 6, dtype=numpy.float32)


def model_of(scales, *, quantized: bool = True, transposed: bool = True, batch: int = 0):
    opset = openvino().opset13
    x = opset.parameter([*[batch][: batch > 0], 2, 4], numpy.float32)
    ends = [opset.constant(numpy.float32(end)) for end in (-1, 1)]
    read = opset.fake_quantize(x, *ends, *ends, 255) if quantized else x
    values = numpy.arange(-12, 12, dtype=numpy.int8).reshape(6, 4)
    shape = (-1, 1) if transposed else (1, -1)
    weight = opset.multiply(
        opset.convert(opset.constant(values if transposed else values.T.copy()), "f32"),
        opset.constant(scales.reshape(shape) if scales.size > 1 else scales),
    )
    if batch:
        weight = opset.broadcast(weight, opset.constant([batch, *weight.get_output_shape(0)]))
    return openvino().Model([opset.matmul(read, weight, False, transposed)], [x])


@pytest.mark.parametrize("batch", [0, 3])
@pytest.mark.parametrize("transposed", [True, False])
def test_the_results_stay_and_channels_are_scaled_apart(transposed: bool, batch: int) -> None:
    x = numpy.linspace(-1, 1, 8 * max(1, batch), dtype=numpy.float32).reshape(*[batch][: batch > 0], 2, 4)
    model = model_of(SCALES, transposed=transposed, batch=batch)
    separate_channel_scales(model)
    assert "Unsqueeze" in [node.get_type_name() for node in model.get_ops()]
    rounded = numpy.round(x * 127) / 127
    expected = rounded @ (numpy.arange(-12, 12).reshape(6, 4) * SCALES[:, None]).T
    [found] = core().compile_model(model, "CPU", {"SNIPPETS_MODE": "DISABLE"})(x).values()
    numpy.testing.assert_allclose(found, expected, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize(
    "model",
    [model_of(SCALES, quantized=False), model_of(SCALES[:1])],
    ids=["in floats", "one scale"],
)
def test_nothing_else_is_changed(model) -> None:
    before = [node.get_type_name() for node in model.get_ordered_ops()]
    separate_channel_scales(model)
    assert [node.get_type_name() for node in model.get_ordered_ops()] == before


class Attention(nn.Module):
    """Attention that OpenVINO must not fuse with what follows, because several ops read its result."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        for layer in (self.into, self.out):
            layer.weight.data *= torch.linspace(0.5, 2, layer.out_features)[:, None]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the result and the queries."""
        query, key, value = self.into(x).chunk(3, -1)
        mixed = (query @ key.mT).softmax(-1) @ value
        return self.out(mixed), query


def test_attention_in_eight_bits_is_what_the_simulation_says() -> None:
    torch.manual_seed(0)
    model, items = Attention().eval(), [torch.randn(2, 5, 16) for _ in range(4)]
    quantized = torchport.quantize(
        model, items, method="dynamic", speed=False, accuracy=AccuracyBudget(pcc=0.9)
    )
    assert quantized.plan.count("int8") == 2
    compiled = torchport.compile(quantized, (items[0],), options={"speed_trial": False})
    assert compiled.coverage.complete, compiled.coverage.stayed
    with torch.no_grad():
        for found, expected in zip(compiled(items[0]), quantized(items[0]), strict=True):
            # About one quantization step; one scale for all channels would be off by half the result.
            torch.testing.assert_close(found, expected, rtol=0, atol=0.02 * float(expected.abs().max()))

"""Models trained on real data keep their accuracy, in eager torch and compiled."""

import pytest
import torch
from torch import nn

import torchport
from quantization.digits import (
    ResidualCnn,
    RowLstm,
    SmallViT,
    accuracy,
    calibration,
    digits,
    train,
    trained,
)
from torchport.quantization import QuantizedModel

# These take long to train; test_kinds.py and test_dynamic.py also quantize attention and recurrent layers.
VIT = pytest.param(SmallViT, marks=pytest.mark.conformance)
LSTM = pytest.param(RowLstm, marks=pytest.mark.conformance)
PRODUCTS = ("aten.linear.default", "aten.conv2d.default")


def quantize(kind: type[nn.Module]) -> tuple[nn.Module, QuantizedModel]:
    model = trained(kind)
    return model, torchport.quantize(model, calibration(), speed=False)


@pytest.mark.parametrize(
    ("kind", "usual"),
    [
        (ResidualCnn, 97.0),
        pytest.param(SmallViT, 92.0, marks=pytest.mark.conformance),
        pytest.param(RowLstm, 93.0, marks=pytest.mark.conformance),
    ],
)
def test_static_quantization_keeps_the_accuracy(kind: type[nn.Module], usual: float) -> None:
    before = {name: tensor.clone() for name, tensor in trained(kind).state_dict().items()}
    model, quantized = quantize(kind)
    images = digits()[2]
    floats = accuracy(model)
    assert floats >= usual
    assert accuracy(quantized) >= floats - 0.5
    # Every product is in eight bits, the weights too: a quarter of their bytes, with scales and biases.
    assert all(layer.precision == "int8" for layer in quantized.plan.layers)
    assert any(layer.op in PRODUCTS for layer in quantized.plan.layers)
    assert quantized.report.bytes < 0.45 * quantized.report.bytes_float
    # OpenVINO's results match the simulation's, except for values that lie midway between two steps.
    compiled = torchport.compile(quantized, (images,))
    assert compiled.coverage.complete
    assert accuracy(compiled) >= floats - 0.5
    with torch.no_grad():
        difference = (compiled(images) - quantized(images)).abs()
        assert float(difference.mean()) < 0.02 * float(quantized(images).std())
    # The caller's model is unchanged.
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert not model.training


def test_what_is_rounded_is_rounded_as_the_plan_says() -> None:
    """By hand: a linear layer on inputs between 0 and 1, in 255 steps, with weights in 254."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 4)).eval()
    items = [torch.rand(8, 16) for _ in range(8)]
    for item in items:
        item[0, 0], item[0, 1] = 0.0, 1.0
    quantized = torchport.quantize(model, items, speed=False, options={"bias_correction": False})
    [row] = quantized.report.layers
    assert row.range_low == 0.0
    assert row.range_high == pytest.approx(1.0, abs=1e-3)
    weight, x = model[0].weight.detach(), items[0]
    scale = weight.abs().amax(1, keepdim=True) / 127
    step = (row.range_high - row.range_low) / 255
    expected = (x / step).round().clamp(0, 255) * step @ ((weight / scale).round() * scale).T + model[0].bias
    with torch.no_grad():
        assert torch.allclose(quantized(x), expected, atol=16 * step * float(scale.max()))
        assert not torch.equal(quantized(x), model(x))


@pytest.mark.parametrize("kind", [VIT, LSTM])
def test_ranges_at_each_call_keep_the_accuracy(kind: type[nn.Module]) -> None:
    """Nothing is calibrated; the steps of the LSTM are quantized too."""
    model = trained(kind)
    quantized = torchport.quantize(model, calibration()[:1], method="dynamic", speed=False)
    assert accuracy(quantized) >= accuracy(model) - 0.5
    assert quantized.plan.count("int8") == len(quantized.plan.layers)
    assert (quantized.report.calibrated_on, quantized.report.judged_on) == (0, 1)


@pytest.mark.parametrize("kind", [ResidualCnn, VIT, LSTM])
def test_weights_in_eight_bits_keep_the_accuracy(kind: type[nn.Module]) -> None:
    model, images = trained(kind), digits()[2]
    quantized = torchport.quantize(model, calibration()[:2], method="weight_only", speed=False)
    assert accuracy(quantized) >= accuracy(model) - 0.2
    linear = quantized.module.get_submodule("head")
    weight = model.get_submodule("head").weight.detach()
    scale = weight.abs().amax(1, keepdim=True) / 127
    assert linear.values.dtype is torch.int8
    assert torch.allclose(linear.weight, (weight / scale).round() * scale)
    compiled = torchport.compile(quantized, (images,))
    with torch.no_grad():
        assert torch.allclose(compiled(images), quantized(images), atol=1e-3)
    assert type(quantized.module) is kind


# One digit is 0.17 points. Which of the hardest a transformer recognizes depends on the order of batches.
@pytest.mark.parametrize(
    ("kind", "drop"),
    [
        (ResidualCnn, 0.2),
        pytest.param(SmallViT, 0.7, marks=pytest.mark.conformance),
        pytest.param(RowLstm, 0.2, marks=pytest.mark.conformance),
    ],
)
def test_prepare_train_convert_save_load_run(kind: type[nn.Module], drop: float, tmp_path) -> None:
    """The whole workflow of quantization-aware training, to a file and back."""
    model, images = trained(kind), digits()[2]
    floats = accuracy(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    prepared = torchport.quantize(model, calibration(), method="qat")
    start = [parameter.detach().clone() for parameter in prepared.parameters()]
    train(prepared, 2, rate=3e-4)
    assert any(not torch.equal(old, new) for old, new in zip(start, prepared.parameters(), strict=True))
    quantized = prepared.convert()
    assert quantized.plan.count("int8") == len(quantized.plan.layers)
    assert any(tensor.dtype is torch.int8 for tensor in quantized.parameters())
    with torch.no_grad():  # the converted model matches the trained one
        assert torch.allclose(quantized(images), prepared(images), atol=1e-3)
    assert accuracy(quantized) >= floats - drop
    torchport.save(torchport.compile(quantized, (images,)), tmp_path / "digits.pt2")
    loaded = torchport.load(tmp_path / "digits.pt2")
    assert accuracy(loaded) >= floats - drop
    assert loaded.plan == quantized.plan
    after = model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())

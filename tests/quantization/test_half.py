"""Layers in half precision: by an option, by an edited plan, and where eight bits are not enough."""

import json

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import QuantizationError
from torchport.quantization import AccuracyBudget
from torchport.records.quantization import QuantizationPlan

LOOSE = AccuracyBudget(pcc=0.01)
PLAIN = {"smooth_quant": False, "bias_correction": False}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


def items() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(6, 8, generator=generator) for _ in range(5)]


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_layers_are_cast_by_an_override_and_the_plan_travels(name: str, tmp_path) -> None:
    data, floats = items(), model()
    quantized = torchport.quantize(
        floats, data, speed=False, accuracy=LOOSE, options={"overrides": {"*": name}}
    )
    assert [(layer.precision, layer.bits) for layer in quantized.plan.layers] == [(name, 16)] * 2
    assert all(layer.reason == "kept_by_option" for layer in quantized.plan.layers)
    dtype, x = getattr(torch, name), data[0]
    half = model().to(dtype)
    with torch.no_grad():
        hidden = torch.relu(half[0](x.to(dtype)).float())
        expected = half[2](hidden.to(dtype)).float()
        assert torch.equal(quantized(x), expected)
        assert not torch.equal(quantized(x), floats(x))
    assert quantized(x).dtype is torch.float32
    assert quantized.report.bytes == quantized.report.bytes_float // 2
    compiled = torchport.compile(quantized, (x,))
    torchport.save(compiled, tmp_path / "half.pt2")
    loaded = torchport.load(tmp_path / "half.pt2")
    assert loaded.plan == quantized.plan
    for each in (compiled, loaded):
        torch.testing.assert_close(each(x), expected, rtol=2e-2, atol=2e-2)


def test_an_edited_plan_is_followed() -> None:
    data = items()
    first = torchport.quantize(model(), data[:1], method="dynamic", speed=False, accuracy=LOOSE)
    written = json.loads(json.dumps(first.plan.to_json()))
    written["layers"][1]["precision"] = "float16"
    plan = QuantizationPlan.from_json(written)
    again = torchport.quantize(
        model(), data[:1], method="dynamic", speed=False, accuracy=LOOSE, options={"plan": plan}
    )
    assert [(each.precision, each.reason) for each in again.plan.layers] == [
        ("int8", "default"),
        ("float16", "kept_by_option"),
    ]
    assert {tensor.dtype for tensor in again.parameters()} == {torch.int8, torch.float16, torch.float32}


def test_sensitive_layers_get_half_precision_where_that_is_enough() -> None:
    data = items()
    loose = torchport.quantize(model(), data, speed=False, accuracy=LOOSE, options=PLAIN)
    budget = AccuracyBudget(sqnr=loose.report.sqnr + 2)
    found = torchport.quantize(
        model(), data, speed=False, accuracy=budget, options={**PLAIN, "half": "float16"}
    )
    changed = [layer for layer in found.plan.layers if layer.precision != "int8"]
    assert changed
    assert {(layer.precision, layer.reason, layer.bits) for layer in changed} == {
        ("float16", "sensitive", 16)
    }
    assert found.report.sqnr >= loose.report.sqnr + 2
    # Where even half precision is not enough, float32 is used.
    strict = torchport.quantize(
        model(), data, speed=False, accuracy=AccuracyBudget(sqnr=100), options={**PLAIN, "half": "bfloat16"}
    )
    assert [layer.precision for layer in strict.plan.layers] == ["float"] * 2


def test_what_has_no_weight_stays_as_it_is() -> None:
    class Sum(nn.Module):
        """A convolution with a residual sum."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Add it."""
            return torch.relu(self.conv(x)) + x

    data = [torch.rand(2, 3, 6, 6) for _ in range(3)]
    with pytest.raises(QuantizationError, match="has no weight, so it cannot be bfloat16"):
        torchport.quantize(Sum().eval(), data, speed=False, options={"overrides": {"aten.add": "bfloat16"}})
    with pytest.raises(QuantizationError, match="half is 'float8'"):
        torchport.quantize(model(), items(), options={"half": "float8"})
    with pytest.raises(QuantizationError, match="weight_only does not use the option half"):
        torchport.quantize(model(), items(), method="weight_only", options={"half": "float16"})


def test_it_is_trained_in_floats_and_cast_when_it_is_converted() -> None:
    prepared = torchport.quantize(model(), items(), method="qat", options={"overrides": {"2": "float16"}})
    quantized = prepared.convert()
    assert [layer.precision for layer in quantized.plan.layers] == ["int8", "float16"]
    assert {parameter.dtype for parameter in prepared.parameters()} == {torch.float32}
    with torch.no_grad():
        torch.testing.assert_close(quantized(items()[0]), prepared(items()[0]), rtol=1e-2, atol=1e-2)

"""Layers with 8-bit or 4-bit weights replace the model's own everywhere, and behave like them."""

import copy
import types

import pytest
import torch
from torch import nn

import torchport
from torchport.quantization import AccuracyBudget
from torchport.quantization.weight_layers import FourBitLinear, WeightOnlyLinear

LOOSE = AccuracyBudget(pcc=0.01)


def quantize(model: nn.Module, data: object = (), **options: object) -> torchport.QuantizedModel:
    return torchport.quantize(
        model.eval(), data, method="weight_only", accuracy=LOOSE, speed=False, options=options
    )


def assert_near(model: nn.Module, quantized: nn.Module, x: torch.Tensor) -> None:
    """The error is smaller than a single wrong layer would cause."""
    with torch.no_grad():
        expected = model(x)
        error = (quantized(x) - expected).abs().max() / expected.abs().max()
    assert float(error) < 0.03


def test_hooks_run_as_before() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    model[0].register_forward_hook(lambda module, args, result: 3 * result + 1)
    model[1].register_forward_pre_hook(
        lambda module, args, kwargs: ((2 * args[0],), kwargs), with_kwargs=True
    )
    quantized = quantize(model)
    assert quantized.plan.count("weight_only") == 2
    assert_near(model, quantized, torch.randn(4, 16))


def test_a_weight_that_is_computed_before_each_call_stays() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.utils.weight_norm(nn.Linear(16, 16)), nn.Linear(16, 16))
    model(torch.randn(2, 16)).sum().backward()  # leaves a tensor that torch refuses to copy
    with torch.no_grad():
        model[0].weight_g.mul_(5)  # the weight itself is stale until the next call
    quantized = quantize(model)
    first, second = quantized.plan.layers
    assert (first.precision, first.reason) == ("float", "not_supported")
    assert "computes it" in first.detail
    assert second.precision == "weight_only"
    assert_near(model, quantized, torch.randn(4, 16))
    fitted = quantize(model, [torch.randn(4, 16) for _ in range(5)], bits=4, group_size=16)
    assert [layer.precision for layer in fitted.plan.layers] == ["float", "weight_only"]


@pytest.mark.parametrize("kind", ["forward", "complex", "empty"])
def test_a_layer_that_has_no_such_form_stays(kind: str) -> None:
    layer = nn.Linear(0 if kind == "empty" else 4, 4, dtype=torch.complex64 if kind == "complex" else None)
    if kind == "forward":
        layer.forward = types.MethodType(lambda self, x: -nn.functional.linear(x, self.weight), layer)
    model = nn.ModuleDict({"odd": layer, "plain": nn.Linear(4, 4)})
    odd, plain = quantize(model).plan.layers
    assert (odd.precision, odd.reason) == ("float", "not_supported")
    assert plain.precision == "weight_only"


class Listed(nn.Module):
    """Calls its layers through a list of its own, passing the input by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.one, self.other = nn.Embedding(9, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.layers = [self.one, self.other]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return a vector for each of them."""
        x = self.table(input=ids)
        for layer in self.layers:
            x = layer(input=x)
        return x


def test_layers_are_replaced_in_lists_and_called_by_name() -> None:
    torch.manual_seed(0)
    model = Listed()
    quantized = quantize(model)
    assert [type(layer) for layer in quantized.module.layers] == [WeightOnlyLinear] * 2
    assert quantized.module.layers[0] is quantized.module.one
    assert_near(model, quantized, torch.randint(0, 9, (2, 3)))


@pytest.mark.parametrize("bits", [8, 4])
def test_a_weight_that_linear_layers_share_is_stored_once(bits: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    alone = quantize(copy.deepcopy(model)[:2], bits=bits).report.bytes
    model[2].weight = model[0].weight
    items = [torch.randn(8, 64) for _ in range(5)]
    quantized = quantize(model, items, bits=bits, size_ratio=0)
    one, other = quantized.module[0], quantized.module[2]
    assert type(one) is type(other) is (FourBitLinear if bits == 4 else WeightOnlyLinear)
    assert one.scale is other.scale
    assert quantized.report.bytes == alone + 64 * 4  # another bias
    # They also stay shared when the size or the accuracy gives them more bits.
    for more in ({"size_ratio": 1}, {"size_ratio": 0}):
        finer = torchport.quantize(
            model, items, method="weight_only", speed=False, options={"bits": bits, **more},
            accuracy=AccuracyBudget(pcc=0.9999),
        )  # fmt: skip
        assert finer.report.bytes == quantize(model).report.bytes
        assert len({(layer.bits, layer.reason) for layer in finer.plan.layers}) == 1


def test_a_weight_that_must_stay_in_floats_stays_so_for_all_that_share_it() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    model[1].weight = model[0].weight
    quantized = quantize(model, overrides={"1": "float"})
    assert {layer.precision for layer in quantized.plan.layers} == {"float"}


def test_float16_holds_small_weights_in_eight_bits() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(64, 64, bias=False)
    layer.weight.data *= 1e-3  # steps near a millionth, which float16 holds imprecisely
    layer = layer.half()
    made = quantize(layer).module.weight
    assert made.dtype is torch.float16
    assert quantize(nn.Linear(8, 8)).half().module.weight.dtype is torch.float16
    weight = layer.weight.detach().float()
    step = weight.abs().amax(1, keepdim=True) / 127
    assert bool(((made.float() - weight).abs() <= 0.6 * step).all())


class Bfloat16(nn.Module):
    """Takes a list, and hard-codes the dtype that it computes in."""

    def __init__(self, named: bool) -> None:
        super().__init__()
        self.layer, self.named = nn.Linear(64, 64), named

    def forward(self, items: list[torch.Tensor]) -> torch.Tensor:
        """Return the sum."""
        return sum(self.layer(x.to(torch.bfloat16) if self.named else x) for x in items)


@pytest.mark.parametrize("named", [True, False])
def test_four_bits_are_fitted_in_half_precision_whatever_the_inputs_are(named: bool) -> None:
    torch.manual_seed(0)
    model = Bfloat16(named).bfloat16()
    items = [([torch.randn(4, 64).bfloat16() for _ in range(2)],) for _ in range(6)]
    quantized = quantize(model, items, bits=4)
    assert quantized.plan.layers[0].bits == 4
    assert quantized.report.pcc > 0.98

"""Channels of very different sizes share the 8-bit steps: equalizing gives each channel its own share."""

import pytest
import torch
from torch import nn

import torchport
from torchport.quantization import AccuracyBudget

LOOSE = AccuracyBudget(pcc=0.01)


def unequal(kind: str) -> tuple[nn.Module, list[torch.Tensor]]:
    """Return a model whose inner channels differ by a factor of 10,000, and inputs for it."""
    torch.manual_seed(0)
    if kind == "convolutions":
        layers = [nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 8, 3)]
        data = [torch.randn(2, 3, 8, 8) for _ in range(6)]
    else:
        layers = [nn.Linear(16, 8), nn.LeakyReLU(), nn.Dropout(), nn.Linear(8, 16)]
        data = [torch.randn(8, 16) for _ in range(6)]
    first, last, sizes = layers[0], layers[-1], torch.logspace(-2, 2, 8)
    with torch.no_grad():
        first.weight.mul_(sizes.reshape(-1, *[1] * (first.weight.dim() - 1)))
        first.bias.mul_(sizes)
        last.weight.div_(sizes.reshape(1, -1, *[1] * (last.weight.dim() - 2)))
    return nn.Sequential(*layers).eval(), data


@pytest.mark.parametrize("kind", ["convolutions", "linear layers"])
def test_it_keeps_small_channels(kind: str) -> None:
    model, data = unequal(kind)
    sqnr = {
        equalize: torchport.quantize(
            model, data, speed=False, accuracy=LOOSE, options={"equalize": equalize}
        ).report.sqnr
        for equalize in (False, True)
    }
    assert sqnr[True] > sqnr[False] + 10


@pytest.mark.parametrize("kept", ["0", "3", "*"])
def test_what_is_in_floats_is_the_model_s_own_function(kept: str) -> None:
    model, data = unequal("convolutions")
    options = {"equalize": True, "overrides": {kept: "float"}}
    quantized = torchport.quantize(model, data, speed=False, accuracy=LOOSE, options=options)
    with torch.no_grad():
        found, expected = quantized(data[0]), model(data[0])
    tolerance = 1e-4 if kept == "*" else 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * float(expected.abs().max()))


def test_what_is_trained_is_equalized_too() -> None:
    model, data = unequal("linear layers")
    trainable = torchport.quantize(model, data, method="qat", options={"equalize": True})
    with torch.no_grad():
        error = (trainable(data[0]) - model(data[0])).abs().max() / model(data[0]).abs().max()
    assert float(error) < 0.1
    assert sum(each.requires_grad for each in trainable.parameters()) == 4


def test_weights_that_others_read_are_left_alone() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = self.layer(torch.relu(self.layer(x)))
            return self.last(inner) + inner

    model, data = Shared().eval(), [torch.randn(4, 8) for _ in range(5)]
    options = {"equalize": True, "overrides": {"*": "float"}}
    quantized = torchport.quantize(model, data, speed=False, options=options)
    with torch.no_grad():
        assert torch.equal(quantized(data[0]), model(data[0]))

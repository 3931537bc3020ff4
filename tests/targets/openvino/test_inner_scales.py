"""Weights in 8 or 4 bits that are multiplied transposed: their scales differ along the inner dimension."""

import pytest
import torch
from torch import nn

import torchport
from torchport.quantization import AccuracyBudget


class Decoder(nn.Module):
    """Multiplies by a linear layer's weight and by its transpose."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(16, 32)

    def forward(self, x):
        return self.encode(x).relu() @ self.encode.weight


class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return nn.functional.linear(x, self.linear.weight.t()) + self.linear(x)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("made", [Decoder, Square])
def test_they_are_computed_as_torch_does(made, symmetric, bits):
    torch.manual_seed(0)
    model, x = made().eval(), torch.randn(4, 16)
    options = {"bits": bits, "symmetric_weights": symmetric, **({"group_size": 8} if bits == 4 else {})}
    loose = AccuracyBudget(pcc=0.5)
    quantized = torchport.quantize(
        model, (), method="weight_only", speed=False, accuracy=loose, options=options
    )
    compiled = torchport.compile(quantized, (x,), options={"cache": False, "speed_trial": False})
    assert compiled.coverage.stayed == ()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), quantized(x), atol=1e-4, rtol=1e-4)

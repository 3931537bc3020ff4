"""Grids of any number of steps: layers with 8-bit weights compute with the same steps as torch."""

import pytest
import torch
from torch import nn

import torchport

NO_TRIAL = {"cache": False, "speed_trial": False}


class Rounded(nn.Module):
    """A layer whose input is rounded, and whose weight is in eight bits."""

    def __init__(self, sizes, grid):
        super().__init__()
        self.grid = grid
        self.integers = nn.Parameter(torch.randint(-127, 128, sizes, dtype=torch.int8), requires_grad=False)
        self.scale = nn.Parameter(torch.rand(sizes[0], *[1] * (len(sizes) - 1)) / 100)

    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, *self.grid)
        weight = self.integers.float() * self.scale
        return nn.functional.conv2d(x, weight) if weight.dim() == 4 else nn.functional.linear(x, weight)


GRIDS = [
    *[(0, -127, 127), (20, -127, 127), (0, -128, 126), (0, -128, 127), (0, 0, 255), (0, 0, 254)],
    *[(0, 0, 127), (50, 0, 127), (0, -64, 63), (0, -100, 100), (7, 0, 15), (200, 150, 255)],
    *[(0, -200, 50), (5, 3, 260), (0, -32768, 32767), (0, 0, 1)],
]


@pytest.mark.parametrize("sizes", [(8, 3, 3, 3), (32, 64)], ids=["convolution", "linear"])
@pytest.mark.parametrize(("zero", "low", "high"), GRIDS)
def test_layers_use_the_steps_of_the_grid(sizes, zero, low, high):
    torch.manual_seed(0)
    model = Rounded(sizes, (1 / 64, zero, low, high)).eval()
    # Multiples of a third of a step: none is halfway between two, so torch's steps are the only right ones.
    x = torch.randint(-600, 600, (2, 3, 9, 9) if len(sizes) == 4 else (96, 64)) / 192.0
    compiled = torchport.compile(model, (x,), options=NO_TRIAL)
    assert compiled.coverage.stayed == ()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), atol=1e-4, rtol=1e-4)

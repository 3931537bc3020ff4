"""Linear layers whose weights are stored in eight or four bits; they compute in floats."""

from __future__ import annotations

import torch
from torch import nn

from torchport.quantization.weight_grids import Grid


class WeightOnlyLinear(nn.Module):
    """A linear layer whose weight is stored in eight bits, with a scale for each output.

    Args:
        linear: the layer in floats.
        symmetric: whether 0 is in the middle of the numbers that are stored.
    """

    def __init__(self, linear: nn.Linear, symmetric: bool = True) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        grid = Grid.around(weight.float(), 8, symmetric)
        # Parameters, not buffers: the compiler computes with constants beforehand.
        self.values = nn.Parameter(grid.round(weight.float()).to(torch.int8), False)
        self.scale = nn.Parameter(grid.scale.to(weight.dtype), False)
        self.zero = None if symmetric else nn.Parameter(grid.zero.to(torch.int8), False)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone(), False)

    @property
    def weight(self) -> torch.Tensor:
        """The weight that is stored, in floats."""
        values = self.values.to(self.scale.dtype)
        return (values if self.zero is None else values - self.zero.to(self.scale.dtype)) * self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute in floats."""
        return nn.functional.linear(x, self.weight, self.bias)


class FourBitLinear(nn.Module):
    """A linear layer whose weight is stored in four bits, with a scale for each group of inputs.

    Two numbers share a byte, the first in its lower half: OpenVINO takes that as it is.

    Args:
        linear: the layer in floats.
        group: how many inputs share a scale; they must be a multiple of it.
        symmetric: whether 0 is in the middle of the numbers that are stored.
        importance: how much each input counts, such as its mean square on data; None: all alike.
    """

    def __init__(
        self, linear: nn.Linear, group: int, symmetric: bool = True, importance: torch.Tensor | None = None
    ) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._dtype = weight.dtype
        groups = weight.float().unflatten(1, (-1, group))
        counts = None if importance is None else importance.float().unflatten(0, (-1, group))
        grid = Grid.fitted(groups, 4, symmetric, counts)
        stored = (grid.round(groups) - grid.low).to(torch.uint8)
        self.packed = nn.Parameter(stored[..., 0::2] | (stored[..., 1::2] << 4), False)
        self.scale = nn.Parameter(grid.scale.to(torch.bfloat16), False)
        self.zero = None if symmetric else nn.Parameter((grid.zero - grid.low).to(torch.uint8), False)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone(), False)

    @property
    def weight(self) -> torch.Tensor:
        """The weight that is stored, in floats."""
        halves = [torch.bitwise_and(self.packed, 15), torch.bitwise_right_shift(self.packed, 4)]
        outputs, groups, half = self.packed.shape
        values = torch.stack(halves, -1).view(outputs, groups, 2 * half).to(torch.float32)
        zero = 8.0 if self.zero is None else self.zero.to(torch.float32)
        weight = (values - zero) * self.scale.to(torch.float32)
        return weight.view(self.out_features, self.in_features).to(self._dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute in floats."""
        return nn.functional.linear(x, self.weight, self.bias)

"""A linear layer with the numbers that a target's own narrow floats hold."""

from __future__ import annotations

import torch
from torch import nn

from torchport.targets import OwnWeight


class OwnFormLinear(nn.Module):
    """A linear layer with the numbers that a target's narrow floats hold, in floats.

    The target finds that its own floats hold them exactly, and stores them so.

    Args:
        linear: the layer in floats.
        own: its weight in the target's floats.
    """

    def __init__(self, linear: nn.Linear, own: OwnWeight) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = nn.Parameter(own.values, False)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone(), False)
        self.dtype, self.stored_bytes = own.dtype, own.bytes

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # as torch's own names it
        """Compute in floats."""
        return nn.functional.linear(input, self.weight, self.bias)

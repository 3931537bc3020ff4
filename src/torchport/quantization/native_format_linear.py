"""A linear layer whose weight is rounded to a target's own narrow float format."""

from __future__ import annotations

import torch
from torch import nn

from torchport.targets import OwnWeight


class OwnFormLinear(nn.Module):
    """A linear layer whose weight is rounded to a target's narrow float format, but stored in torch floats.

    The target detects that its own format holds the values exactly, and stores them in it.

    Args:
        linear: the layer in floats.
        own: its weight, rounded to the target's format.
    """

    def __init__(self, linear: nn.Linear, own: OwnWeight) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = nn.Parameter(own.values, False)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone(), False)
        self.dtype, self.stored_bytes = own.dtype, own.bytes

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # named as in torch
        """Compute in floats."""
        return nn.functional.linear(input, self.weight, self.bias)

"""Layers whose weights are stored in eight or four bits; they compute in floats."""

from __future__ import annotations

import torch
from torch import nn

from torchport.quantization.weight_grids import Grid
from torchport.quantization.weight_rounding import Rounded, round_groups


class WeightOnlyLinear(nn.Module):
    """A linear layer whose weight is stored in eight bits, with a scale for each output.

    Args:
        linear: the layer in floats.
        symmetric: whether 0 is in the middle of the numbers that are stored.
        table: an embedding that has the same weight: what it stores is shared.
    """

    def __init__(
        self, linear: nn.Linear, symmetric: bool = True, table: WeightOnlyEmbedding | None = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.values, self.scale, self.zero = _eight_bits(linear.weight, symmetric, table)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone(), False)

    @property
    def weight(self) -> torch.Tensor:
        """The weight that is stored, in floats."""
        return _in_floats(self.values, self.scale, self.zero)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute in floats."""
        return nn.functional.linear(x, self.weight, self.bias)


class WeightOnlyEmbedding(nn.Module):
    """An embedding whose rows are stored in eight bits, with a scale for each.

    Rows are looked up as they are stored, and only those that were become floats.

    Args:
        embedding: the embedding in floats.
        symmetric: whether 0 is in the middle of the numbers that are stored.
    """

    def __init__(self, embedding: nn.Embedding, symmetric: bool = True) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = embedding.num_embeddings, embedding.embedding_dim
        self.padding_idx = embedding.padding_idx
        self.values, self.scale, self.zero = _eight_bits(embedding.weight, symmetric, None)

    @property
    def weight(self) -> torch.Tensor:
        """The weight that is stored, in floats."""
        return _in_floats(self.values, self.scale, self.zero)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look rows up."""
        stored = (self.values, self.scale, self.zero)
        rows = (None if each is None else nn.functional.embedding(ids, each) for each in stored)
        values, scale, zero = rows
        assert values is not None
        assert scale is not None
        return _in_floats(values, scale, zero)


def _eight_bits(
    weight: torch.Tensor, symmetric: bool, shared: WeightOnlyEmbedding | None
) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter | None]:
    """Return the whole numbers, the scale and the zero point of each row."""
    if shared is not None:
        return shared.values, shared.scale, shared.zero
    floats = weight.detach().float()
    grid = Grid.around(floats, 8, symmetric)
    # Parameters, not buffers: the compiler computes with constants beforehand.
    values = nn.Parameter(grid.round(floats).to(torch.int8), False)
    zero = None if symmetric else nn.Parameter(grid.zero.to(torch.int8), False)
    return values, nn.Parameter(grid.scale.to(weight.dtype), False), zero


def _in_floats(values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None) -> torch.Tensor:
    # By way of float32, which OpenVINO knows weights of eight bits by; a product has 16 bits at most.
    floats = values.to(torch.float32)
    floats = floats if zero is None else floats - zero.to(torch.float32)
    return (floats * scale.to(torch.float32)).to(scale.dtype)


class FourBitLinear(nn.Module):
    """A linear layer whose weight is stored in four bits, with a scale for each group of inputs.

    Two numbers share a byte, the first in its lower half: OpenVINO takes that as it is.

    Args:
        linear: the layer in floats.
        group: how many inputs share a scale; they must be a multiple of it.
        symmetric: whether 0 is in the middle of the numbers that are stored.
        rounded: the weight as it is rounded; None: each number to what is nearest.
    """

    def __init__(
        self, linear: nn.Linear, group: int, symmetric: bool = True, rounded: Rounded | None = None
    ) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._dtype = weight.dtype
        rounded = rounded or round_groups(weight.float(), group, symmetric)
        grid = rounded.grid
        stored = (rounded.whole - grid.low).to(torch.uint8)
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

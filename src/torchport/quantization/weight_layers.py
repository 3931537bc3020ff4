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
        symmetric: whether weights have no zero point.
        owner: another layer with the same weight, whose storage is shared.
    """

    def __init__(
        self,
        linear: nn.Linear,
        symmetric: bool = True,
        owner: WeightOnlyEmbedding | WeightOnlyLinear | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.values, self.scale, self.zero = _eight_bits(linear.weight, symmetric, owner)
        self._dtype = _dtype_beside(self.scale, linear.weight)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone(), False)

    @property
    def weight(self) -> torch.Tensor:
        """The stored weight, dequantized."""
        return _in_floats(self.values, self.scale, self.zero, self._dtype)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # named as in torch
        """Compute in floats."""
        return nn.functional.linear(input, self.weight, self.bias)


class WeightOnlyEmbedding(nn.Module):
    """An embedding whose rows are stored in eight bits, with a scale for each.

    Rows are looked up in eight bits, and only those are dequantized.

    Args:
        embedding: the embedding in floats.
        symmetric: whether weights have no zero point.
        owner: another embedding with the same weight, whose storage is shared.
    """

    def __init__(
        self, embedding: nn.Embedding, symmetric: bool = True, owner: WeightOnlyEmbedding | None = None
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = embedding.num_embeddings, embedding.embedding_dim
        self.padding_idx = embedding.padding_idx
        self.values, self.scale, self.zero = _eight_bits(embedding.weight, symmetric, owner)
        self._dtype = _dtype_beside(self.scale, embedding.weight)

    @property
    def weight(self) -> torch.Tensor:
        """The stored weight, dequantized."""
        return _in_floats(self.values, self.scale, self.zero, self._dtype)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # named as in torch
        """Look up rows."""
        stored = (self.values, self.scale, self.zero)
        rows = (None if each is None else nn.functional.embedding(input, each) for each in stored)
        values, scale, zero = rows
        assert values is not None
        assert scale is not None
        return _in_floats(values, scale, zero, self._dtype)


def _eight_bits(
    weight: torch.Tensor, symmetric: bool, shared: WeightOnlyEmbedding | WeightOnlyLinear | None
) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter | None]:
    """Return the integers, the scale and the zero point of each row."""
    if shared is not None:
        return shared.values, shared.scale, shared.zero
    floats = weight.detach().float()
    grid = Grid.around(floats, 8, symmetric)
    # Parameters, not buffers: the compiler would fold constants.
    values = nn.Parameter(grid.round(floats).to(torch.int8), False)
    zero = None if symmetric else nn.Parameter(grid.zero.to(torch.int8), False)
    return values, nn.Parameter(_narrow(grid.scale, weight.dtype), False), zero


def _narrow(scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return scales in a model's dtype, or in float32 if small ones lose precision, as in float16."""
    narrow = scale.to(dtype)
    is_lost = (narrow.float() - scale).abs() > 0.01 * scale
    # Rows of zeros, whose scale is float32's smallest normal number, are exact with any scale.
    return scale if bool((is_lost & (scale > torch.finfo(torch.float32).tiny)).any()) else narrow


def _dtype_beside(scale: torch.Tensor, weight: torch.Tensor) -> torch.dtype | None:
    """Return a weight's dtype if its scales have a different one, else None."""
    return None if scale.dtype is weight.dtype else weight.dtype


def _in_floats(
    values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, dtype: torch.dtype | None
) -> torch.Tensor:
    # Through float32, the pattern by which OpenVINO recognizes 8-bit weights; a product has 16 bits at most.
    floats = values.to(torch.float32)
    floats = floats if zero is None else floats - zero.to(torch.float32)
    return (floats * scale.to(torch.float32)).to(dtype or scale.dtype)


class FourBitLinear(nn.Module):
    """A linear layer whose weight is stored in four bits, with a scale for each group of inputs.

    Two values are packed into a byte, the first in its lower half, the layout that OpenVINO uses itself.

    Args:
        linear: the layer in floats.
        group: how many inputs share a scale; it must divide the number of inputs.
        symmetric: whether weights have no zero point.
        rounded: the rounded weight; None: each value is rounded to nearest.
        owner: another layer with the same weight, in the same groups, whose storage is shared.
    """

    def __init__(
        self,
        linear: nn.Linear,
        group: int,
        symmetric: bool = True,
        rounded: Rounded | None = None,
        owner: FourBitLinear | None = None,
    ) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._dtype = weight.dtype
        self.packed, self.scale, self.zero = (
            _four_bits(rounded or round_groups(weight.float(), group, symmetric), symmetric)
            if owner is None
            else owner.stored
        )
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone(), False)

    @property
    def stored(self) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter | None]:
        """The integers, packed two to a byte, the scales and the zero points."""
        return self.packed, self.scale, self.zero

    @property
    def weight(self) -> torch.Tensor:
        """The stored weight, dequantized."""
        halves = [torch.bitwise_and(self.packed, 15), torch.bitwise_right_shift(self.packed, 4)]
        outputs, groups, half = self.packed.shape
        values = torch.stack(halves, -1).view(outputs, groups, 2 * half).to(torch.float32)
        zero = 8.0 if self.zero is None else self.zero.to(torch.float32)
        weight = (values - zero) * self.scale.to(torch.float32)
        return weight.view(self.out_features, self.in_features).to(self._dtype)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # named as in torch
        """Compute in floats."""
        return nn.functional.linear(input, self.weight, self.bias)


def _four_bits(rounded: Rounded, symmetric: bool) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter | None]:
    """Return the integers, packed two to a byte, the scale and the zero point of each group."""
    grid = rounded.grid
    stored = (rounded.whole - grid.low).to(torch.uint8)
    packed = nn.Parameter(stored[..., 0::2] | (stored[..., 1::2] << 4), False)
    zero = None if symmetric else nn.Parameter((grid.zero - grid.low).to(torch.uint8), False)
    return packed, nn.Parameter(grid.scale.to(torch.bfloat16), False), zero

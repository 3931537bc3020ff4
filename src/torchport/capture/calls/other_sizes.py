"""Makes inputs of other sizes from example inputs: what a model does with them tells what depends on them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch

from torchport.capture.calls.call_inputs import Argument
from torchport.structure import flatten


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """A size that inputs have: dimensions of the same size change together.

    Args:
        value: the size.
        first: whether it is that of a first dimension, which is most often the batch.
    """

    value: int
    first: bool


def input_sizes(arguments: Sequence[Argument]) -> list[Size]:
    """Return the different sizes of a call's tensors, those of first dimensions first."""
    tensors = flatten([argument.value for argument in arguments]).leaves
    found = {
        Size(size, dim == 0 and tensor.dim() > 1)
        for tensor in tensors
        for dim, size in enumerate(tensor.shape)
        if size
    }
    return sorted(found, key=lambda size: (not size.first, size.value))


def with_other_sizes(arguments: Sequence[Argument], sizes: Collection[Size]) -> list[Argument]:
    """Return inputs like the example, with other values for some sizes; their values repeat the example's."""
    flat = flatten([argument.value for argument in arguments])
    leaves = [_resized(leaf, sizes) for leaf in flat.leaves]
    values = flat.structure.rebuild(leaves)
    assert isinstance(values, list)
    return [replace(argument, value=value) for argument, value in zip(arguments, values, strict=True)]


def other(value: int) -> int:
    """Return another size that a model is likely to take: strides and patches divide it, too."""
    for step in (32, 16, 8, 4, 2):
        if value % step == 0 and value >= 2 * step:
            return value + step
    return value + 1


def _resized(tensor: torch.Tensor, sizes: Collection[Size]) -> torch.Tensor:
    for dim, size in enumerate(tensor.shape):
        if Size(size, dim == 0 and tensor.dim() > 1) in sizes:
            index = torch.arange(other(size), device=tensor.device) % size
            tensor = tensor.index_select(dim, index)
    return tensor


def with_other_values(arguments: Sequence[Argument], *, floats_only: bool) -> list[Argument]:
    """Return inputs of the same shapes with other values, in the range of the example's.

    Args:
        arguments: the example.
        floats_only: whether other tensors keep their values, which may mean something.
    """
    generator = torch.Generator().manual_seed(1)
    flat = flatten([argument.value for argument in arguments])
    leaves = [
        _revalued(leaf, generator) if leaf.is_floating_point() or not floats_only else leaf
        for leaf in flat.leaves
    ]
    values = flat.structure.rebuild(leaves)
    assert isinstance(values, list)
    return [replace(argument, value=value) for argument, value in zip(arguments, values, strict=True)]


def _revalued(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not tensor.numel() or tensor.is_complex():
        return tensor
    low, high = tensor.min().item(), tensor.max().item()
    if tensor.is_floating_point():
        random = torch.rand(tensor.shape, generator=generator) * (high - low) + low
    else:
        random = torch.randint(int(low), int(high) + 1, tensor.shape, generator=generator)
    return random.to(tensor.dtype).to(tensor.device)

"""Makes inputs with other sizes or values from the example inputs, to find what depends on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch

from torchport.capture.calls.call_inputs import Argument
from torchport.structure import flatten


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """A size that occurs in the inputs; dimensions of the same size vary together.

    Args:
        value: the size.
        first: whether it is the size of a first dimension, usually the batch.
    """

    value: int
    first: bool


def input_sizes(arguments: Sequence[Argument]) -> list[Size]:
    """Return the distinct sizes of a call's tensors, those of first dimensions first."""
    tensors = flatten([argument.value for argument in arguments]).leaves
    found = {
        Size(size, dim == 0 and tensor.dim() > 1)
        for tensor in tensors
        for dim, size in enumerate(tensor.shape)
        if size
    }
    return sorted(found, key=lambda size: (not size.first, size.value))


def with_other_sizes(arguments: Sequence[Argument], sizes: Collection[Size]) -> list[Argument]:
    """Return inputs like the example with some sizes changed; their contents repeat the example's."""
    flat = flatten([argument.value for argument in arguments])
    leaves = [_resized(leaf, sizes) for leaf in flat.leaves]
    values = flat.structure.rebuild(leaves)
    assert isinstance(values, list)
    return [replace(argument, value=value) for argument, value in zip(arguments, values, strict=True)]


def other(value: int) -> int:
    """Return another size that a model is likely to accept: one that strides and patch sizes divide too."""
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


def with_other_values(arguments: Sequence[Argument], change: ValueChange) -> list[Argument] | None:
    """Return inputs of the same shapes with other values.

    Args:
        arguments: the example.
        change: one of `OTHER_VALUES`.

    Returns:
        The inputs; None if they would equal the example's.
    """
    generator = torch.Generator().manual_seed(1)
    flat = flatten([argument.value for argument in arguments])
    leaves = [change(leaf, generator) for leaf in flat.leaves]
    if all(map(torch.equal, leaves, flat.leaves)):
        return None
    values = flat.structure.rebuild(leaves)
    assert isinstance(values, list)
    return [replace(argument, value=value) for argument, value in zip(arguments, values, strict=True)]


def _randomized(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not tensor.numel() or tensor.is_complex():
        return tensor
    if tensor.dtype is torch.bool:
        return torch.rand(tensor.shape, generator=generator).gt(0.5).to(tensor.device)
    low, high = tensor.min().item(), tensor.max().item()
    if tensor.is_floating_point():
        low, high = (low - abs(low) - 1, high + abs(high) + 1) if high == low else (low, high)
        random = torch.rand(tensor.shape, generator=generator) * (high - low) + low
    else:
        high = high + 1 if high == low else high
        random = torch.randint(int(low), int(high) + 1, tensor.shape, generator=generator)
    return random.to(tensor.dtype).to(tensor.device)


def _randomized_if_float(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _randomized(tensor, generator) if tensor.is_floating_point() else tensor


def _rolled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor.roll(1, -1) if tensor.dim() else tensor


def _scaled_if_float(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor * 0.75 if tensor.is_floating_point() else tensor


def _negated_if_float(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return -tensor if tensor.is_floating_point() else tensor


ValueChange = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
# Several kinds: integers may have a meaning, so a model may not accept arbitrary ones.
OTHER_VALUES: tuple[ValueChange, ...] = (
    _randomized,
    _randomized_if_float,
    _rolled,
    _scaled_if_float,
    _negated_if_float,
)

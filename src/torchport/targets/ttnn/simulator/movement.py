"""Simulated functions that move elements without changing them."""

from __future__ import annotations

import math

import torch

from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.registry import kernel
from torchport.targets.ttnn.simulator.tensors import Held, hold, need_rank
from torchport.targets.ttnn.ttnn_program import Layout

LAYOUTS: dict[str, Layout] = {"TILE_LAYOUT": "tile", "ROW_MAJOR_LAYOUT": "row_major"}


def _kept(data: torch.Tensor, like: Held) -> Held:
    result = Held(data, like.dtype, like.layout)
    need_rank(result)
    return result


@kernel("reshape")
def reshape(tensor: Held, shape: tuple[int, ...]) -> Held:
    """Another shape of as many elements."""
    if math.prod(shape) != tensor.data.numel():
        refuse("shape", f"{list(tensor.shape)} cannot be reshaped to {list(shape)}")
    return _kept(tensor.data.reshape(shape), tensor)


@kernel("permute")
def permute(tensor: Held, order: tuple[int, ...]) -> Held:
    """The dimensions in another order."""
    return _kept(tensor.data.permute(order).contiguous(), tensor)


@kernel("slice")
def slice_(
    tensor: Held, start: tuple[int, ...], end: tuple[int, ...], step: tuple[int, ...] | None = None
) -> Held:
    """A part of each dimension."""
    index = []
    for size, low, high, by in zip(tensor.shape, start, end, step or (1,) * len(start), strict=True):
        if not (0 <= low < size and 0 < high <= size and low < high and by > 0):
            refuse("argument", f"a slice from {low} to {high} by {by} of {size}")
        index.append(slice(low, high, by))
    return _kept(tensor.data[tuple(index)].contiguous(), tensor)


@kernel("pad")
def pad(tensor: Held, padding: tuple[tuple[int, int], ...], value: float) -> Held:
    """More elements around; on tiles only behind."""
    if tensor.layout == "tile" and any(before for before, _ in padding):
        refuse("argument", "tiles are padded only behind")
    if len(padding) > 5:
        refuse("shape", "a tensor of more than five dimensions is padded")
    flat = [item for pair in reversed(padding) for item in pair]
    [edge] = hold(torch.tensor([value]), tensor.dtype).data.tolist()
    return _kept(torch.nn.functional.pad(tensor.data, flat, value=edge), tensor)


@kernel("concat")
def concat(tensors: tuple[Held, ...], *, dim: int) -> Held:
    """Tensors one behind the other."""
    first = tensors[0]
    if any(item.dtype != first.dtype or item.layout != first.layout for item in tensors):
        refuse("dtype", "tensors of different dtypes or layouts are concatenated")
    if len(tensors) == 1 or first.data.dim() > 5:
        refuse("shape", "concatenation of a single tensor, or of more than five dimensions")
    return _kept(torch.cat([item.data for item in tensors], dim), first)


@kernel("repeat")
def repeat(tensor: Held, repetitions: tuple[int, ...]) -> Held:
    """The tensor several times in each dimension."""
    if len(repetitions) != tensor.data.dim() or tensor.data.dim() > 5:
        refuse("shape", "the repetitions are not one for each of up to five dimensions")
    return _kept(tensor.data.repeat(repetitions), tensor)


@kernel("expand")
def expand(tensor: Held, shape: tuple[int, ...]) -> Held:
    """Dimensions of one element, several times."""
    if len(shape) > 5 or len(shape) < tensor.data.dim():
        refuse("shape", "a tensor is expanded to fewer dimensions, or to more than five")
    return _kept(tensor.data.expand(shape).contiguous(), tensor)


@kernel("repeat_interleave")
def repeat_interleave(tensor: Held, repeats: int, *, dim: int) -> Held:
    """Each element of a dimension several times."""
    if tensor.data.dim() != 4:
        refuse("shape", "repeat_interleave of other than four dimensions")
    return _kept(tensor.data.repeat_interleave(repeats, dim), tensor)


@kernel("to_layout")
def to_layout(tensor: Held, layout: str) -> Held:
    """Tiles or rows."""
    return Held(tensor.data, tensor.dtype, LAYOUTS[layout])

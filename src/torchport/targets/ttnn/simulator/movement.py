"""Simulated functions that move elements without changing them, look them up, or create tensors.

Indices are proved to be in bounds, or checked before a program runs.
"""

from __future__ import annotations

import math

import torch

from torchport.targets.ttnn.functions import function
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.tensors import HELD_IN, Held, hold, need_dtype, need_rank, need_tile
from torchport.targets.ttnn.ttnn_program import Call, Dtype, Layout

LAYOUTS: dict[str, Layout] = {"TILE_LAYOUT": "tile", "ROW_MAJOR_LAYOUT": "row_major"}


def _kept(data: torch.Tensor, like: Held) -> Held:
    result = Held(data, like.dtype, like.layout)
    need_rank(result)
    return result


@function("reshape", placeable=True, flops=None, takes_both=True, by_host=True, may_share=True)
def reshape(tensor: Held, shape: tuple[int, ...]) -> Held:
    """Reshape to as many elements."""
    if math.prod(shape) != tensor.data.numel():
        refuse("shape", f"{list(tensor.shape)} cannot be reshaped to {list(shape)}")
    return _kept(tensor.data.reshape(shape), tensor)


@function("permute", placeable=True, flops=None, takes_both=True)
def permute(tensor: Held, order: tuple[int, ...]) -> Held:
    """Permute the dimensions."""
    return _kept(tensor.data.permute(order).contiguous(), tensor)


@function("slice", placeable=True, flops=None, takes_both=True)
def slice_(
    tensor: Held, start: tuple[int, ...], end: tuple[int, ...], step: tuple[int, ...] | None = None
) -> Held:
    """Slice each dimension."""
    index = []
    for size, low, high, by in zip(tensor.shape, start, end, step or (1,) * len(start), strict=True):
        if not (0 <= low < size and 0 < high <= size and low < high and by > 0):
            refuse("argument", f"a slice from {low} to {high} by {by} is invalid for a size of {size}")
        index.append(slice(low, high, by))
    return _kept(tensor.data[tuple(index)].contiguous(), tensor)


def _pads_behind(call: Call) -> bool:
    padding = call.args[1]
    assert isinstance(padding, tuple)
    return not any(pair[0] for pair in padding if isinstance(pair, tuple))


@function("pad", placeable=False, flops=None, takes_both=_pads_behind)
def pad(tensor: Held, padding: tuple[tuple[int, int], ...], value: float) -> Held:
    """Pad with a value; in tile layout only at the end of a dimension."""
    if tensor.layout == "tile" and any(before for before, _ in padding):
        refuse("argument", "tiles can be padded only at the end of a dimension")
    if len(padding) > 5:
        refuse("shape", "a tensor with more than five dimensions is padded")
    flat = [item for pair in reversed(padding) for item in pair]
    [edge] = hold(torch.tensor([value]), tensor.dtype).data.tolist()
    return _kept(torch.nn.functional.pad(tensor.data, flat, value=edge), tensor)


@function("concat", placeable=True, flops=None, takes_both=True)
def concat(tensors: tuple[Held, ...], *, dim: int) -> Held:
    """Concatenate tensors along a dimension."""
    first = tensors[0]
    if any(item.dtype != first.dtype or item.layout != first.layout for item in tensors):
        refuse("dtype", "tensors of different dtypes or layouts are concatenated")
    if len(tensors) == 1 or first.data.dim() > 5:
        refuse("shape", "a single tensor, or one with more than five dimensions, is concatenated")
    return _kept(torch.cat([item.data for item in tensors], dim), first)


@function("repeat", placeable=False, flops=None, takes_both=True)
def repeat(tensor: Held, repetitions: tuple[int, ...]) -> Held:
    """Repeat the tensor along each dimension."""
    if len(repetitions) != tensor.data.dim() or tensor.data.dim() > 5:
        refuse("shape", "there is not one repetition for each of at most five dimensions")
    return _kept(tensor.data.repeat(repetitions), tensor)


@function("expand", placeable=False, flops=None)
def expand(tensor: Held, shape: tuple[int, ...]) -> Held:
    """Broadcast dimensions of size 1."""
    if len(shape) > 5 or len(shape) < tensor.data.dim():
        refuse("shape", "a tensor is expanded to fewer dimensions, or to more than five")
    return _kept(tensor.data.expand(shape).contiguous(), tensor)


@function("repeat_interleave", placeable=False, flops=None)
def repeat_interleave(tensor: Held, repeats: int, *, dim: int) -> Held:
    """Repeat each element of a dimension."""
    if tensor.data.dim() != 4:
        refuse("shape", "ttnn.repeat_interleave needs four dimensions")
    return _kept(tensor.data.repeat_interleave(repeats, dim), tensor)


@function("to_layout", placeable=False, flops=None, by_host=True)
def to_layout(tensor: Held, layout: str) -> Held:
    """Convert between tile and row-major layout."""
    return Held(tensor.data, tensor.dtype, LAYOUTS[layout])


@function("full", placeable=False, flops=None)
def full(shape: tuple[int, ...], value: float, *, dtype: Dtype, layout: str, device: object) -> Held:
    """Create a tensor filled with one value."""
    where = device if isinstance(device, torch.device) else torch.device("cpu")
    return hold(torch.full(shape, value, dtype=HELD_IN[dtype], device=where), dtype, LAYOUTS[layout])


@function("embedding", placeable=False, flops=None)
def embedding(indices: Held, table: Held, *, layout: str) -> Held:
    """Look up rows of a table."""
    need_dtype(indices, "uint32")
    need_dtype(table, "bfloat16")
    if indices.layout != "row_major" or table.layout != "row_major":
        refuse("argument", "an embedding table and its indices must be row-major")
    if indices.data.dim() not in (1, 2) or table.data.dim() != 2:
        refuse("shape", "indices must have one or two dimensions, and an embedding table two")
    data = torch.nn.functional.embedding(indices.data, table.data)
    return Held(data, table.dtype, LAYOUTS[layout])


@function("gather", placeable=False, flops=None)
def gather(tensor: Held, dim: int, *, index: Held) -> Held:
    """Gather elements along a dimension, with an index for each."""
    need_tile(tensor, index)
    need_dtype(tensor, "bfloat16", "float32", "int32")
    need_dtype(index, "uint32")
    if tensor.data.dim() != index.data.dim() or tensor.data.dim() == 0:
        refuse("shape", "the tensor and the index have different ranks, or are scalars")
    for place, (size, given) in enumerate(zip(tensor.shape, index.shape, strict=True)):
        if place != dim % tensor.data.dim() and given > size:
            refuse("shape", "the index is larger than the tensor that it indexes")
    return Held(torch.gather(tensor.data, dim, index.data), tensor.dtype, tensor.layout)

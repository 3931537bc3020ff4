"""Cuts parts out of values; used by the lowerings that slice, split and index."""

from __future__ import annotations

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import Lowering, is_wasteful
from torchport.targets.ttnn.refusal import refuse


def cut(lowering: Lowering, value: Value, dim: int, start: int, end: int, step: int = 1) -> Value:
    """Return a part of one dimension."""
    if start >= end:
        refuse("shape", "a tensor is empty")
    size = value.shape[dim]
    if (start, end, step) == (0, size, 1):
        return value
    if is_wasteful(value.shape) and size != 1:
        kept = [place for place, extent in enumerate(value.shape) if extent != 1]
        thin = lowering.reshaped(value, [value.shape[place] for place in kept])
        shape = list(value.shape)
        shape[dim] = len(range(start, end, step))
        return lowering.reshaped(cut(lowering, thin, kept.index(dim), start, end, step), shape)
    low, high = [0] * len(value.shape), list(value.shape)
    low[dim], high[dim] = start, end
    if step == 1:
        return lowering.call("slice", value, low, high)
    steps = [1] * len(value.shape)
    steps[dim] = step
    return lowering.call("slice", value, low, high, steps)


def cut_last(lowering: Lowering, node: object, start: int, end: int, step: int = 1) -> Value:
    """Return some of the channels of a value that has them last."""
    return cut(lowering, lowering.get(node, form="last"), 3, start, end, step)

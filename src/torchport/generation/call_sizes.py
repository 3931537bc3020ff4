"""Calls with varying numbers of tokens and slots: their dynamic dimensions, and examples of other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim

from torchport.generation.model_inputs import MASK


class FixedSizes(Exception):
    """No single program works for all numbers of tokens, or of slots; says why."""


@dataclass(frozen=True)
class CallSizes:
    """The sizes that may vary from call to call.

    Args:
        tokens: the maximum number of tokens in a call; 0 if it is fixed to the example's.
        slots: the maximum number of slots in a cache; 0 if it is fixed to the example's.
        least_slots: the minimum number of slots.
    """

    tokens: int = 0
    slots: int = 0
    least_slots: int = 0


def vary(args: Sequence[Any], sizes: CallSizes, tokens: int, slots: int = 0) -> tuple[tuple[Any, ...], Any]:
    """Return an example call of the given sizes, and its `dynamic_shapes` for `torch.export`.

    Args:
        args: arguments of `shells.cached_call`, of any size.
        sizes: the limits of the sizes that vary.
        tokens, slots: the example's numbers of tokens and slots; 0 keeps the caches' number of slots.
    """
    width = Dim("tokens", min=1, max=sizes.tokens)
    length = Dim("slots", min=sizes.least_slots, max=sizes.slots) if sizes.slots else None
    _, given, first, _, keys, values, *states = args
    start = int(first)
    past = None if length is None else {2: length}
    open_dims = (
        {1: width},
        {name: _varying(value, width, length, name == MASK, bool(states)) for name, value in given.items()},
        None,
        None,
        [past] * len(keys),
        [past] * len(values),
        *([None] * len(each) for each in states),
    )
    wanted = {width: tokens} | ({length: slots} if length is not None and slots else {})
    example = [_resized(value, dims, wanted) for value, dims in zip(args, open_dims, strict=True)]
    example[1] = {
        name: _without_later_slots(value, start + tokens) if name == MASK else value
        for name, value in example[1].items()
    }
    return tuple(example), open_dims


def _varying(value: object, width: object, length: object, is_mask: bool, has_states: bool) -> Any:
    """Return the dynamic dimensions of an argument: those over a call's tokens, or over slots.

    Where there are recurrent states, a 2D mask is over the call's tokens: which of them the states ignore.
    """
    if isinstance(value, Mapping):
        return {name: _varying(inner, width, length, is_mask, has_states) for name, inner in value.items()}
    if not isinstance(value, torch.Tensor):
        return None
    if not is_mask or (has_states and value.dim() == 2):
        return {value.dim() - 1: width}
    over_slots = {} if length is None else {value.dim() - 1: length}
    return ({2: width} if value.dim() == 4 else {}) | over_slots or None


def _without_later_slots(mask: Any, length: int) -> Any:
    """Return a mask without the slots that the call does not fill, as in all real calls."""
    if isinstance(mask, Mapping):
        return {name: _without_later_slots(inner, length) for name, inner in mask.items()}
    if not isinstance(mask, torch.Tensor) or mask.dtype is not torch.bool or mask.dim() != 4:
        return mask
    return mask & (torch.arange(mask.shape[-1], device=mask.device) < length)


def _resized(value: Any, dims: Any, wanted: Mapping[Any, int]) -> Any:
    """Resize an argument, repeating or dropping entries."""
    if isinstance(value, Mapping):
        return {name: _resized(inner, dims[name], wanted) for name, inner in value.items()}
    if isinstance(value, list):
        return [_resized(inner, each, wanted) for inner, each in zip(value, dims, strict=True)]
    for dim, size in (dims or {}).items():
        if size in wanted:
            places = torch.arange(wanted[size], device=value.device)
            value = value.index_select(dim, places % value.shape[dim])
    return value

"""Calls whose numbers of tokens and slots vary: which of their arguments do, and examples of other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim

from torchport.generation.model_inputs import MASK


class FixedSizes(Exception):
    """There is no one program for all numbers of tokens, or of slots, and why."""


@dataclass(frozen=True)
class CallSizes:
    """What may vary from call to call.

    Args:
        tokens: how many tokens a call takes at most; 0 if it takes as many as its example.
        slots: how many slots a cache has at most; 0 if it has as many as the example's.
        least_slots: how many it has at least.
    """

    tokens: int = 0
    slots: int = 0
    least_slots: int = 0


def vary(args: Sequence[Any], sizes: CallSizes, tokens: int, slots: int = 0) -> tuple[tuple[Any, ...], Any]:
    """Return an example of a call whose sizes may vary, and which do, as `torch.export` takes it.

    Args:
        args: of `shells.cached_call`, of any size.
        sizes: how large they may become.
        tokens, slots: how many the example has; no number of slots leaves them as they are.
    """
    width = Dim("tokens", min=1, max=sizes.tokens)
    length = Dim("slots", min=sizes.least_slots, max=sizes.slots) if sizes.slots else None
    ids, given, start, last, keys, values = args
    past = None if length is None else {2: length}
    open_dims = (
        {1: width},
        {name: _varying(value, width, length, name == MASK) for name, value in given.items()},
        None,
        None,
        [past] * len(keys),
        [past] * len(values),
    )
    wanted = {width: tokens} | ({length: slots} if length is not None and slots else {})
    example = [
        _resized(value, dims, wanted)
        for value, dims in zip((ids, given, start, last, keys, values), open_dims, strict=True)
    ]
    example[1] = {
        name: _without_later_slots(value, int(start) + tokens) if name == MASK else value
        for name, value in example[1].items()
    }
    return tuple(example), open_dims


def _varying(value: object, width: object, length: object, is_mask: bool) -> Any:
    """Return the dimensions that have a size for each token of a call, or for each slot."""
    if isinstance(value, Mapping):
        return {name: _varying(inner, width, length, is_mask) for name, inner in value.items()}
    if not isinstance(value, torch.Tensor):
        return None
    if not is_mask:
        return {value.dim() - 1: width}
    over_slots = {} if length is None else {value.dim() - 1: length}
    return ({2: width} if value.dim() == 4 else {}) | over_slots or None


def _without_later_slots(mask: Any, length: int) -> Any:
    """Return a mask that shows only slots that are filled by then, as all of them do."""
    if isinstance(mask, Mapping):
        return {name: _without_later_slots(inner, length) for name, inner in mask.items()}
    if not isinstance(mask, torch.Tensor) or mask.dtype is not torch.bool or mask.dim() != 4:
        return mask
    return mask & (torch.arange(mask.shape[-1], device=mask.device) < length)


def _resized(value: Any, dims: Any, wanted: Mapping[Any, int]) -> Any:
    """Return an argument of other sizes, what there is repeated or left out."""
    if isinstance(value, Mapping):
        return {name: _resized(inner, dims[name], wanted) for name, inner in value.items()}
    if isinstance(value, list):
        return [_resized(inner, each, wanted) for inner, each in zip(value, dims, strict=True)]
    for dim, size in (dims or {}).items():
        if size in wanted:
            places = torch.arange(wanted[size], device=value.device)
            value = value.index_select(dim, places % value.shape[dim])
    return value

"""Calls whose number of tokens varies: which of their arguments do, and examples of another width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim

from torchport.generation.model_inputs import MASK


class FixedWidth(Exception):
    """There is no one program for all numbers of tokens, and why."""


def vary_width(args: Sequence[Any], most: int, width: int) -> tuple[tuple[Any, ...], tuple[object, ...]]:
    """Return an example of a call whose width may vary, and which sizes do, as `torch.export` takes it.

    Args:
        args: of `shells.cached_call`, of any width.
        most: how many tokens a call takes at most.
        width: how many the example has.
    """
    tokens = Dim("tokens", min=1, max=most)
    ids, given, *rest = args
    sizes = {name: _varying(value, tokens, name == MASK) for name, value in given.items()}
    resized = {name: _resized(value, sizes[name], width) for name, value in given.items()}
    fixed = [[None] * len(value) if isinstance(value, list) else None for value in rest]
    return (_resized(ids, {1: tokens}, width), resized, *rest), ({1: tokens}, sizes, *fixed)


def _varying(value: object, tokens: object, is_mask: bool) -> Any:
    """Return the dimensions that have a size for each token of a call."""
    if isinstance(value, Mapping):
        return {name: _varying(inner, tokens, is_mask) for name, inner in value.items()}
    if not isinstance(value, torch.Tensor):
        return None
    if is_mask:
        return {2: tokens} if value.dim() == 4 else None  # else it is a row for all slots
    return {value.dim() - 1: tokens}


def _resized(value: Any, sizes: Any, width: int) -> Any:
    """Return an argument for so many tokens, the given ones repeated or left out."""
    if isinstance(value, Mapping):
        return {name: _resized(inner, sizes[name], width) for name, inner in value.items()}
    for dim in sizes or ():
        value = value.index_select(dim, torch.arange(width) % value.shape[dim])
    return value

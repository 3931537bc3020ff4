"""Rotary embeddings that have other frequencies from some length on: a call's largest position decides.

The library's own calls have a whole prompt, so that all of its tokens have the same frequencies. In pieces of
it those before that length would have others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

_SWITCHES = "longrope"


def switching_lengths(model: nn.Module) -> set[int]:
    """Return the lengths beyond which a model has other frequencies."""
    found: set[int] = set()
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        parameters: Any = getattr(getattr(module, "config", None), "rope_parameters", None)
        if kinds is None or not isinstance(parameters, Mapping):
            continue
        for each in parameters.values() if isinstance(kinds, Mapping) else [parameters]:
            if isinstance(each, Mapping) and each.get("rope_type") == _SWITCHES:
                found.add(int(each["original_max_position_embeddings"]))
    return found


def is_switched(lengths: Collection[int], given: Mapping[str, Any], start: int, count: int) -> bool:
    """Whether the first tokens of a call would have other frequencies than with those after them.

    Args:
        lengths: beyond which there are others.
        given: what goes with the tokens.
        start: how many tokens came before.
        count: how many tokens there are.
    """
    positions = given.get("position_ids")
    if not isinstance(positions, torch.Tensor):
        positions = torch.arange(start, start + count)
    first, last = int(positions[..., 0].max()) + 1, int(positions.max()) + 1
    return any(first <= length < last for length in lengths)

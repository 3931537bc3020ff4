"""Rotary embeddings that switch frequencies beyond some length, depending on a call's largest position.

A call of transformers gets the whole prompt, so that all of its tokens have the same frequencies. If the
prompt is run in pieces, pieces before that length would have other frequencies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

_SWITCHES = "longrope"


def switching_lengths(model: nn.Module) -> set[int]:
    """Return the lengths beyond which a model switches frequencies."""
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
    """Whether the frequencies switch within a call, so that its first tokens alone would have other ones.

    Args:
        lengths: the lengths beyond which the frequencies switch.
        given: the inputs that go with the tokens, such as `position_ids`.
        start: how many tokens came before.
        count: how many tokens there are.
    """
    positions = given.get("position_ids")
    if not isinstance(positions, torch.Tensor):
        positions = torch.arange(start, start + count)
    first, last = int(positions[..., 0].max()) + 1, int(positions.max()) + 1
    return any(first <= length < last for length in lengths)

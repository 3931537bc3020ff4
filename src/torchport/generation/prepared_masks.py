"""Asks transformers which attention masks it prepares for a model that generates."""

from __future__ import annotations

from typing import Any

import torch

from torchport.generation.model_inputs import MASK
from torchport.generation.pieces import SlotNumbers
from torchport.generation.slot_cache import SlotCache


def first_mask(loop: Any, cache: SlotCache) -> object:
    """Return the masks of a first token, or of padding and a token where only padding brings some about.

    Args:
        loop: the model that transformers generates with.
        cache: an empty cache.
    """
    padding = int(cache.layout is not None)
    ids = torch.ones(1, 1 + padding, dtype=torch.long, device=cache.device)
    return _prepared(loop, cache, ids, ids.cumsum(1) - padding, ids.cumsum(1) - 1)


def last_mask(loop: Any, cache: SlotCache, length: int) -> object:
    """Return the masks of the last of `length` tokens, given an empty cache."""
    cache.make_room(length, SlotNumbers(cache.numbers.most))
    cache.forget_all_but(length - 1)
    ids = torch.ones(1, length, dtype=torch.long, device=cache.device)
    positions = torch.tensor([[length - 1]], device=cache.device)
    return _prepared(loop, cache, ids, ids, positions, next_sequence_length=1)


def _prepared(
    loop: Any, cache: SlotCache, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, **more: int
) -> object:
    prepared = loop.prepare_inputs_for_generation(
        ids, past_key_values=cache, attention_mask=mask, position_ids=positions, use_cache=True, **more
    )
    return prepared.get(MASK)

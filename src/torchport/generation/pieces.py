"""Runs tokens through a compiled call, in pieces; needs no library but torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from torchport.errors import RuntimeRefusal
from torchport.generation.model_inputs import MASK, PER_TOKEN, MaskForm, piece_per_token

# Caches that grow do so by so many slots: a device prepares itself for each size that it has not seen.
_STEP = 128


@dataclass(frozen=True)
class SlotNumbers:
    """How many slots caches have.

    Args:
        most: how many tokens a sequence may have.
        grow: whether calls take caches of any size, so that there are only as many slots as are of use: a
            call reads all of them.
    """

    most: int
    grow: bool = False

    @classmethod
    def open(cls, most: int) -> SlotNumbers:
        """Return those of caches that grow, if there is more than one size."""
        return cls(most, most > _STEP)

    def for_tokens(self, length: int) -> int:
        """Return how many slots there are for sequences of a length."""
        return min(-(-max(length, 1) // _STEP) * _STEP, self.most) if self.grow else self.most


class Slots(Protocol):
    """A cache of keys and values: buffers, one slot a token."""

    @property
    def buffers(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The keys and the values, by layer."""
        ...

    @property
    def numbers(self) -> SlotNumbers:
        """How many slots there may be."""
        ...

    @property
    def slots(self) -> int:
        """How many slots there are."""
        ...

    def make_room(self, length: int, numbers: SlotNumbers) -> None:
        """Have slots for so many tokens, in one of these numbers."""
        ...

    def write(self, new: tuple[list[torch.Tensor], list[torch.Tensor]], start: int, count: int) -> None:
        """Put what a call made into the slots from `start` on: its first `count` tokens."""
        ...


class Pieces:
    """Cuts tokens into pieces, and calls for each.

    Args:
        call: the compiled call; see `shells.cached_call`.
        width: how many tokens of a prompt a call takes.
        is_open: whether it takes fewer as well; else pieces are padded.
        keeps: whether a call gives the logits of one token only.
        name: the model's name in messages.
    """

    def __init__(
        self, call: Callable[..., Any], width: int, keeps: bool, name: str, *, is_open: bool = False
    ) -> None:
        self._call = call
        self._width = width
        self._is_open = is_open
        self._keeps = keeps
        self._name = name

    def run(
        self,
        ids: torch.Tensor,
        cache: Slots,
        start: int,
        given: Mapping[str, Any],
        wanted: int,
        masks: MaskForm,
    ) -> torch.Tensor:
        """Run tokens, note their keys and values in the cache, and return the last ones' logits.

        Args:
            ids: the tokens.
            cache: where the past is, and they go.
            start: how many tokens came before.
            given: what goes with them.
            wanted: how many tokens' logits are wanted.
            masks: how the model takes its masks.
        """
        batch, total = ids.shape
        check_room(cache, start + total, self._name)
        single = total - wanted if self._keeps and wanted > 1 else total  # from here on, every token's logits
        place = 0
        logits: list[torch.Tensor] = []
        while place < total:
            left = single - place if place < single else 1
            width = self._width if left > 1 and start + place + self._width <= cache.slots else 1
            if self._is_open:
                width = min(left, self._width)
            count = min(left, width)
            inputs: dict[str, object] = {
                key: piece_per_token(given[key], batch, place, width, count)
                for key in PER_TOKEN
                if given.get(key) is not None
            }
            inputs[MASK] = masks.piece(given.get(MASK), batch, start, place, width, count)
            row, keys, values = self._call(
                piece_per_token(ids, batch, place, width, count),
                inputs,
                torch.tensor(start + place, device=ids.device),
                torch.tensor([count - 1], device=ids.device),
                *cache.buffers,
            )
            cache.write((keys, values), start + place, count)
            logits.append(row if self._keeps else row[:, :count])
            place += count
        return torch.cat(logits, 1)[:, -wanted:] if len(logits) > 1 else logits[0][:, -wanted:]


def check_room(cache: Slots, length: int, name: str) -> None:
    """Refuse a sequence that is longer than the cache.

    Raises:
        RuntimeRefusal: says how long it is.
    """
    if length > cache.numbers.most:
        raise RuntimeRefusal(
            f"a sequence has {length} tokens, and the model was compiled for {cache.numbers.most} at most",
            where=name,
            remedy=f"compile it with max_length={length}",
        )

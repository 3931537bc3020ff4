"""Runs tokens through a compiled call in pieces; needs only torch, not transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from torchport.errors import RuntimeRefusal
from torchport.generation.model_inputs import MASK, PER_TOKEN, MaskForm, piece_per_token

# Caches grow by this many slots: a device has to prepare for each new size.
_STEP = 128


@dataclass(frozen=True)
class SlotNumbers:
    """How many slots caches may have.

    Args:
        most: the maximum number of tokens in a sequence.
        grow: whether calls take caches of any size, so that a cache has few more slots than tokens: a call
            reads all of them.
    """

    most: int
    grow: bool = False

    @classmethod
    def open(cls, most: int) -> SlotNumbers:
        """Return the numbers for caches that grow, if that gives more than one size."""
        return cls(most, most > _STEP)

    def for_tokens(self, length: int) -> int:
        """Return how many slots a cache has for sequences of the given length."""
        return min(-(-max(length, 1) // _STEP) * _STEP, self.most) if self.grow else self.most


class Slots(Protocol):
    """A KV cache: buffers with one slot for each token."""

    @property
    def buffers(self) -> tuple[list[torch.Tensor], ...]:
        """The keys and the values, by layer; the recurrent states, if there are any."""
        ...

    @property
    def numbers(self) -> SlotNumbers:
        """How many slots the cache may have."""
        ...

    @property
    def slots(self) -> int:
        """How many slots the cache has now."""
        ...

    def make_room(self, length: int, numbers: SlotNumbers) -> None:
        """Grow the cache, if needed, to the number of slots that `numbers` gives for `length` tokens."""
        ...

    def write(self, new: Sequence[Sequence[torch.Tensor]], start: int, count: int) -> None:
        """Write the keys and values of a call's first `count` tokens to the slots from `start` on."""
        ...


class Pieces:
    """Cuts tokens into pieces, and runs the compiled call for each.

    Args:
        call: the compiled call; see `shells.cached_call`.
        width: how many tokens of a prompt a call takes.
        is_open: whether it takes fewer as well; otherwise pieces are padded, unless the cache holds recurrent
            states, which padding would change: then the rest of a prompt is run token by token.
        keeps: whether a call returns the logits of one token only.
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
        """Run tokens, write their keys and values to the cache, and return the logits of the last tokens.

        Args:
            ids: the tokens.
            cache: the KV cache, which is read and extended.
            start: how many tokens came before.
            given: the mask and the per-token inputs.
            wanted: how many tokens' logits to return.
            masks: how the model takes its masks.
        """
        batch, total = ids.shape
        check_room(cache, start + total, self._name)
        # From here on, one token a call, so that each one's logits are returned.
        single = total - wanted if self._keeps and wanted > 1 else total
        place = 0
        logits: list[torch.Tensor] = []
        while place < total:
            left = single - place if place < single else 1
            least = 2 if len(cache.buffers) == 2 else self._width
            width = self._width if left >= least and start + place + self._width <= cache.slots else 1
            if self._is_open:
                width = min(left, self._width)
            count = min(left, width)
            inputs: dict[str, object] = {
                key: piece_per_token(given[key], batch, place, width, count)
                for key in PER_TOKEN
                if given.get(key) is not None
            }
            inputs[MASK] = masks.piece(given.get(MASK), batch, start, place, width, count)
            row, *new = self._call(
                piece_per_token(ids, batch, place, width, count),
                inputs,
                torch.tensor(start + place, device=ids.device),
                torch.tensor([count - 1], device=ids.device),
                *cache.buffers,
            )
            cache.write(new, start + place, count)
            logits.append(row if self._keeps else row[:, :count])
            place += count
        return torch.cat(logits, 1)[:, -wanted:] if len(logits) > 1 else logits[0][:, -wanted:]


def check_room(cache: Slots, length: int, name: str) -> None:
    """Refuse a sequence that is longer than the cache may become.

    Raises:
        RuntimeRefusal: the sequence is too long.
    """
    if length > cache.numbers.most:
        raise RuntimeRefusal(
            f"a sequence has {length} tokens, and the model was compiled for {cache.numbers.most} at most",
            where=name,
            remedy=f"compile it with max_length={length}",
        )

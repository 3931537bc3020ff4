"""Runs prompts and steps without transformers: tokens in, logits out, with a KV cache in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchport.errors import RuntimeRefusal, one_line
from torchport.generation.model_inputs import MASK
from torchport.generation.pieces import Pieces, SlotNumbers, check_room
from torchport.generation.plain_masks import make_masks, mask_form
from torchport.generation.slot_stacks import SlotStacks
from torchport.records import GenerationForm


class KeyValueCache:
    """Keys and values of the tokens so far. Made by `prefill`.

    Args:
        form: how the model is called.
        batch: how many sequences there are.
    """

    def __init__(self, form: GenerationForm, batch: int) -> None:
        dtype = getattr(torch, form.dtype)
        most = form.max_length
        self.numbers = SlotNumbers.open(most) if form.open_slots else SlotNumbers(most)
        self.slots = self.numbers.for_tokens(1)
        self.length = 0
        keys = [(batch, heads, self.slots, width) for heads, width, _ in form.layers]
        values = [(batch, heads, self.slots, width) for heads, _, width in form.layers]
        self._keep(SlotStacks([*keys, *values], dtype))

    def _keep(self, stacks: SlotStacks) -> None:
        self._stacks = stacks
        layers = len(stacks.buffers) // 2
        self.keys, self.values = stacks.buffers[:layers], stacks.buffers[layers:]

    def make_room(self, length: int, numbers: SlotNumbers) -> None:
        """Grow the cache, if needed, to the number of slots that `numbers` gives for `length` tokens."""
        slots = numbers.for_tokens(length)
        if slots <= self.slots:
            return
        self.slots = slots
        self._keep(SlotStacks.grown([*self.keys, *self.values], slots))

    @property
    def buffers(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The keys and the values, by layer."""
        return self.keys, self.values

    def write(self, new: Sequence[Sequence[torch.Tensor]], start: int, count: int) -> None:
        """Write the keys and values of a call's first `count` tokens to the slots from `start` on."""
        self._stacks.write([*self.keys, *self.values], [*new[0], *new[1]], start, count)
        self.length = start + count


class PlainCalls:
    """A compiled call, for use without transformers.

    Args:
        form: how to call it.
        call: the compiled call.
        name: the model's name in messages.
    """

    def __init__(self, form: GenerationForm, call: Callable[..., Any], name: str) -> None:
        self._form = form
        self._name = name
        self._pieces = Pieces(call, form.width, form.keeps_logits, name, is_open=form.open_width)

    @torch.no_grad()
    def run(self, ids: torch.Tensor, cache: KeyValueCache | None) -> tuple[torch.Tensor, KeyValueCache]:
        """Run tokens that follow those in the cache, and return the last one's logits and the cache.

        Raises:
            RuntimeRefusal: there are no tokens, or too many, or the cache is another model's.
        """
        form = self._form
        if form.library_only:
            raise RuntimeRefusal(
                f"only transformers' generate can call it: {form.library_only}",
                where=self._name,
                remedy="install transformers, and use generate",
            )
        self._check_tokens(ids)
        cache = KeyValueCache(form, ids.shape[0]) if cache is None else cache
        self._check(cache, ids.shape[0])
        start, count = cache.length, ids.shape[1]
        check_room(cache, start + count, self._name)
        cache.make_room(start + count, cache.numbers)
        given: dict[str, object] = {MASK: make_masks(form.masks, start, count, cache.slots)}
        if form.positions:
            given["position_ids"] = torch.arange(start, start + count)[None]
        masks = mask_form(form.masks, cache.slots)
        try:
            logits = self._pieces.run(ids, cache, start, given, 1, masks)
        except (IndexError, RuntimeRefusal) as error:
            if not isinstance(error, IndexError) and not isinstance(error.__cause__, IndexError):
                raise
            raise RuntimeRefusal(
                f"a token is not in the model's vocabulary, or a position is out of range: {one_line(error)}",
                where=self._name,
                remedy="use the model's own tokenizer",
            ) from error
        return logits[:, -1], cache

    def _check_tokens(self, ids: object) -> None:
        if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or not ids.numel():
            found = list(ids.shape) if isinstance(ids, torch.Tensor) else f"a {type(ids).__name__}"
            raise RuntimeRefusal(
                f"expected a non-empty tensor of tokens [sequences, tokens], got {found}",
                where=self._name,
            )

    def _check(self, cache: object, batch: int) -> None:
        if (
            not isinstance(cache, KeyValueCache)
            or cache.numbers.most != self._form.max_length
            or [tuple(keys.shape[:2]) for keys in cache.keys]
            != [(batch, heads) for heads, _, _ in self._form.layers]
        ):
            raise RuntimeRefusal(
                f"a {type(cache).__name__} is not a cache of this model for {batch} sequences",
                where=self._name,
                remedy="pass the cache that prefill returned",
            )

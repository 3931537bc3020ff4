"""Cuts the inputs that transformers prepares for a call into pieces, padded to a fixed width.

A piece is padded on the right. No token attends to what comes after it, so the padding changes nothing; what
it leaves in the cache is overwritten by the next tokens before any of them can attend to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchport.errors import RuntimeRefusal

# The per-token inputs that a compiled call may take.
PER_TOKEN = ("position_ids", "token_type_ids")
MASK = "attention_mask"

_WITHOUT_EFFECT = ("use_cache", "return_dict", "cache_position")  # fixed in a compiled call


def unsupported_argument(given: Mapping[str, object], *known: str) -> str:
    """Return the first argument that is set and that a compiled call does not take; "" if there is none."""
    return next(
        (
            key
            for key, value in given.items()
            if value is not None and value is not False and key not in (*known, *_WITHOUT_EFFECT)
        ),
        "",
    )


def check_mask(mask: object, prompt: object, config: Any, where: str) -> None:
    """Refuse a mask of another length than the prompt; a decoder's may cover a cache, too.

    Raises:
        RuntimeRefusal: the message has both lengths.
    """
    if not all(isinstance(each, torch.Tensor) and each.dim() == 2 for each in (mask, prompt)):
        return
    columns, tokens = mask.shape[1], prompt.shape[1]  # type: ignore[attr-defined]  # tensors, as checked
    if columns < tokens or (columns > tokens and config.is_encoder_decoder):
        raise RuntimeRefusal(
            f"the attention mask has {columns} columns, but the prompt has {tokens} tokens",
            where=where,
            remedy="pass a mask with a column for each token",
        )


def empty_sequences(mask: object) -> list[int]:
    """Return the sequences whose tokens a mask all hides.

    The result of a token that attends to nothing depends on the number of slots, so compiled calls do not
    take these sequences.
    """
    if not isinstance(mask, torch.Tensor) or mask.dim() != 2:
        return []
    return (~mask.bool().any(1)).nonzero().flatten().tolist()


def refuse_empty_sequences(mask: object, where: str) -> None:
    """Refuse a mask that hides all tokens of a sequence, where eager torch cannot run the call either.

    Raises:
        RuntimeRefusal: the message names the sequence.
    """
    if empty := empty_sequences(mask):
        raise RuntimeRefusal(
            f"the prompt of sequence {empty[0]} is empty: its attention mask has only zeros",
            where=where,
            remedy="give each sequence at least one token that is not padding",
        )


class MaskForm:
    """How a model takes its masks: over all slots for each token, or one row that marks the real tokens.

    Args:
        prepared: the mask that transformers prepared for one token.
        slots: the number of slots in the cache.
        device: the device to make masks on.
        has_states: whether the model keeps recurrent states. A 2D mask then marks which of a call's tokens
            the states take in; otherwise it marks which slots are no padding.
    """

    def __init__(
        self,
        prepared: object,
        slots: int,
        device: torch.device | str = "cpu",
        *,
        has_states: bool = False,
    ) -> None:
        self._form = prepared
        self._slots = slots
        self._device = device
        self._has_states = has_states

    @property
    def marks_tokens(self) -> bool:
        """Whether the model gets a mask of the tokens that its recurrent states take in."""
        forms = self._form.values() if isinstance(self._form, Mapping) else [self._form]
        return self._has_states and any(isinstance(form, torch.Tensor) and form.dim() == 2 for form in forms)

    def piece(self, mask: object, batch: int, start: int, place: int, width: int, count: int) -> object:
        """Return the mask of `count` tokens from `place` on, padded to `width`; `start` tokens are cached."""
        return self._piece(self._form, mask, batch, start, place, width, count)

    def _piece(
        self, form: object, mask: object, batch: int, start: int, place: int, width: int, count: int
    ) -> object:
        if isinstance(form, Mapping):
            given = mask if isinstance(mask, Mapping) else dict.fromkeys(form, mask)
            return {
                key: self._piece(inner, given.get(key), batch, start, place, width, count)
                for key, inner in form.items()
            }
        if isinstance(form, torch.Tensor) and form.dim() == 2:
            if self._has_states:
                return self._token_mask(mask, batch, place, count).to(form.dtype)
            return self._padding_mask(mask, batch)
        if not isinstance(mask, torch.Tensor):
            return _causal(batch, start + place, width, self._slots, form).to(self._device)
        rows = _over_slots(mask, self._slots)[:, :, place : place + count]
        if mask.shape[2] > 1:  # not a step, whose token attends to itself
            rows = _fill_empty_rows(rows, start + place + count)
        return _padded(rows.expand(batch, *rows.shape[1:]), 2, width).contiguous()

    def _token_mask(self, mask: object, batch: int, place: int, count: int) -> torch.Tensor:
        if not isinstance(mask, torch.Tensor):  # transformers leaves it out where there is no padding
            return torch.ones(batch, count, device=self._device)
        return mask[:, place : place + count].expand(batch, -1).contiguous()

    def _padding_mask(self, mask: object, batch: int) -> torch.Tensor:
        present = torch.ones(batch, self._slots, dtype=torch.long, device=self._device)
        if isinstance(mask, torch.Tensor):
            if not ((mask == 0) | (mask == 1)).all():
                raise RuntimeRefusal(
                    "the attention mask has values other than 0 and 1",
                    remedy="use 1 for each token, and 0 for padding",
                )
            width = min(mask.shape[1], self._slots)  # slots that are not allocated yet are empty
            present[:, :width] = mask[:, :width]
        return present


def _over_slots(mask: torch.Tensor, slots: int) -> torch.Tensor:
    """Return a mask with columns for all slots; added columns are masked out."""
    missing = slots - mask.shape[-1]
    if missing <= 0:
        return mask
    unseen = False if mask.dtype is torch.bool else torch.finfo(mask.dtype).min
    return torch.nn.functional.pad(mask, (0, missing), value=unseen)


def _fill_empty_rows(rows: torch.Tensor, filled: int) -> torch.Tensor:
    """Let tokens that would attend to nothing, as left padding does, attend to all filled slots."""
    is_filled = torch.arange(rows.shape[-1], device=rows.device) < filled
    if rows.dtype is torch.bool:
        return rows | (~rows.any(-1, keepdim=True) & is_filled)
    return rows.masked_fill((rows < 0).all(-1, keepdim=True) & is_filled, 0)


def _causal(batch: int, start: int, width: int, slots: int, form: object) -> torch.Tensor:
    """Return a causal mask in the form that transformers would make."""
    seen = torch.arange(slots) <= torch.arange(start, start + width)[:, None]
    mask = seen.expand(batch, 1, width, slots).contiguous()
    if isinstance(form, torch.Tensor) and form.dtype is not torch.bool:
        lowest = torch.finfo(form.dtype).min
        return torch.zeros(mask.shape, dtype=form.dtype).masked_fill_(~mask, lowest)
    return mask


def piece_per_token(tensor: torch.Tensor, batch: int, place: int, width: int, count: int) -> torch.Tensor:
    """Return a per-token input for `count` tokens from `place` on, padded to `width`."""
    rows = tensor[..., place : place + count]
    if rows.dim() == 2:
        rows = rows.expand(batch, -1)
    return _padded(rows, rows.dim() - 1, width).contiguous()


def _padded(tensor: torch.Tensor, dim: int, width: int) -> torch.Tensor:
    """Pad a tensor along a dimension to a width by repeating its last entry."""
    missing = width - tensor.shape[dim]
    if missing <= 0:
        return tensor
    last = tensor.narrow(dim, tensor.shape[dim] - 1, 1)
    return torch.cat([tensor, last.repeat_interleave(missing, dim)], dim)

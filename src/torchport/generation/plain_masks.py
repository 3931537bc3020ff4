"""Makes masks without transformers: describes the masks that it prepares, and builds the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from torchport.generation.model_inputs import MaskForm
from torchport.records import MaskSpec

_NONE = MaskSpec(0, "")


def describe_masks(prepare: Callable[[int], object], slots: int) -> tuple[dict[str, MaskSpec], str]:
    """Describe the masks that a model takes, and say why only transformers can make them; "" if we can too.

    Args:
        prepare: returns the mask that transformers prepares for the last of a number of tokens.
        slots: the number of slots in the cache.
    """
    last = prepare(slots)
    found = {name: _spec(mask, slots) for name, mask in _named(last).items()}
    windows = {spec.window for spec in found.values() if spec.window}
    wanted = {1, 2, slots // 2, slots - 1, slots, *(w + by for w in windows for by in (-1, 0, 1))}
    for length in sorted(length for length in wanted if 0 < length <= slots):
        ours = _named(make_masks(found, length - 1, 1, slots))
        theirs = _named(prepare(length))
        if ours.keys() != theirs.keys() or not all(_same(ours[name], theirs[name]) for name in ours):
            return (
                found,
                "its attention masks are neither plain causal nor sliding-window masks",
            )
    return found, ""


def _named(mask: object) -> dict[str, object]:
    return dict(mask) if isinstance(mask, Mapping) else {"": mask}


def _spec(mask: object, slots: int) -> MaskSpec:
    """Describe a mask from the one prepared for the last token."""
    if not isinstance(mask, torch.Tensor):
        return _NONE
    dtype = str(mask.dtype).removeprefix("torch.")
    if mask.dim() != 4:
        return MaskSpec(mask.dim(), dtype)
    seen = int((mask if mask.dtype is torch.bool else mask == 0)[0, 0, -1].sum())
    return MaskSpec(4, dtype, 0 if seen == slots else seen)


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
        return ours.dtype is theirs.dtype and torch.equal(ours, theirs)
    return ours is None and theirs is None


def make_masks(specs: Mapping[str, MaskSpec], start: int, count: int, slots: int) -> object:
    """Return the masks of tokens without padding, as `MaskForm.piece` takes them.

    Args:
        specs: the masks that the model takes.
        start: how many tokens came before.
        count: how many tokens there are.
        slots: the number of slots in the cache.
    """
    made = {name: _mask(spec, start, count, slots) for name, spec in specs.items()}
    return made[""] if list(made) == [""] else made


def _mask(spec: MaskSpec, start: int, count: int, slots: int) -> torch.Tensor | None:
    if spec.dims == 2:
        return (torch.arange(slots) < start + count).to(getattr(torch, spec.dtype))[None]
    if spec.dims != 4:
        return None
    slot, token = torch.arange(slots), torch.arange(start, start + count)[:, None]
    seen = (slot <= token) & (slot > token - (spec.window or slots))
    seen = seen.view(1, 1, count, slots)
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if dtype is torch.bool:
        return seen
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)


def mask_form(specs: Mapping[str, MaskSpec], slots: int) -> MaskForm:
    """Return how a model takes its masks, from their description."""
    examples = {
        name: torch.zeros((1,) * spec.dims, dtype=getattr(torch, spec.dtype)) if spec.dims else None
        for name, spec in specs.items()
    }
    return MaskForm(examples[""] if list(examples) == [""] else examples, slots)

"""Finds the form of a model's cache, what it keeps from step to step, by running the model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import cache_utils
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from torchport.errors import CompileError
from torchport.generation.past_cache import PastCache
from torchport.generation.pieces import SlotNumbers
from torchport.generation.recurrent_states import Layout, state_forms, states_in
from torchport.generation.slot_cache import SlotCache
from torchport.records import GenerationForm

_ATTENTION = (DynamicLayer, DynamicSlidingWindowLayer)
_WITH_STATES = tuple(
    getattr(cache_utils, name)
    for name in (
        "LinearAttentionLayer",
        "LinearAttentionAndFullAttentionLayer",
        "LinearAttentionAndSlidingWindowAttentionLayer",
    )
    if hasattr(cache_utils, name)
)

# How far a token's keys and values may differ with another token after it, relative to the largest: allows
# for rounding, and for quantized layers that compute a scale from all of their inputs.
_LEAST = 0.02
_STEPS = 8  # times the dtype's epsilon, where that is more


@dataclass(frozen=True, slots=True)
class CacheForm:
    """The form of a cache.

    Args:
        shapes: by layer, the number of heads, the width of a key, and the width of a value.
        dtype: a dtype that represents all keys and values exactly.
        is_causal: whether a token's entries are independent of later tokens, so that pieces can be run.
        layout: which layers keep what, if some keep recurrent states.
    """

    shapes: Sequence[tuple[int, int, int]]
    dtype: torch.dtype
    is_causal: bool = True
    layout: Layout | None = None


def form_from_file(form: GenerationForm) -> CacheForm:
    """Return the form of a cache as a file describes it."""
    layout = Layout(form.attention, form.states) if form.states else None
    return CacheForm(form.layers, getattr(torch, form.dtype), layout=layout)


def find_cache_form(
    run: Callable[[torch.Tensor, Cache], object],
    config: Any,
    name: str,
    *,
    may_hold_states: bool = False,
    device: torch.device | str = "cpu",
) -> CacheForm:
    """Return the form of a model's cache.

    Args:
        run: runs the model on tokens and an empty cache.
        config: the model's config.
        name: the model's name in messages.
        may_hold_states: whether recurrent states are supported.
        device: the model's device.

    Raises:
        CompileError: the model keeps no keys and values, or more than those and recurrent states; or these
            differ if a prompt is run in pieces.
    """
    config = config.get_text_config(decoder=True)
    one, two = DynamicCache(config=config), DynamicCache(config=config)
    run(torch.tensor([[1]]), one)
    layout = _layout_of(one) if may_hold_states else None
    problem = what_else_is_kept(one, with_states=layout is not None)
    if problem:
        raise CompileError(problem, where=name, remedy="generate with the model itself")
    layers = _attention_layers(one)
    run(torch.tensor([[1, 0]]), two)
    pairs = zip(layers, _attention_layers(two), strict=True)
    is_causal = all(_is_beginning(*pair) for pair in pairs)
    kept = [tensor.dtype for layer in layers for tensor in (layer.keys, layer.values)]
    shapes = [(layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3]) for layer in layers]
    form = CacheForm(shapes, functools.reduce(torch.promote_types, kept), is_causal, layout)
    if layout is not None and not _continues(run, form, layout, config, device):
        raise CompileError(
            "the model's recurrent states are not those of the whole prompt if it is run in pieces",
            where=name,
            remedy="generate with the model itself",
        )
    return form


def _continues(
    run: Callable[[torch.Tensor, Cache], object],
    form: CacheForm,
    layout: Layout,
    config: Any,
    device: torch.device | str,
) -> bool:
    """Whether a few tokens leave the same states at once and, from states of zeros, in two pieces."""
    whole = DynamicCache(config=config)
    run(torch.tensor([[1, 0, 1]]), whole)
    cache = SlotCache(form.shapes, 1, SlotNumbers(4), form.dtype, device, layout)
    for start, ids in ((0, [[1]]), (1, [[0, 1]])):
        keys, values, states = cache.buffers
        past = PastCache(keys, values, torch.tensor(start, device=device), 0, layout, states)
        run(torch.tensor(ids), past)
        cache.write(past.new, start, len(ids[0]))
    expected = states_in(whole.layers, layout.states)
    return all(map(_is_close, states_in(cache.layers, layout.states), expected))


def what_else_is_kept(cache: DynamicCache, *, with_states: bool = False) -> str:
    """Return why a cache does not hold just keys and values after one token; empty if it does.

    Args:
        cache: the cache.
        with_states: whether it may hold recurrent states, too.
    """
    known = (*_ATTENTION, *_WITH_STATES) if with_states else _ATTENTION
    odd = [layer for layer in cache.layers if type(layer) not in known]
    if odd:
        return f"the model keeps more than keys and values from step to step ({type(odd[0]).__name__})"
    if not _attention_layers(cache):
        return "the model keeps no keys and values from step to step"
    return ""


def _attention_layers(cache: DynamicCache) -> list[Any]:
    """Return the layers that hold keys and values."""
    return [layer for layer in cache.layers if _holds_keys(layer)]


def _holds_keys(layer: Any) -> bool:
    return isinstance(layer, CacheLayerMixin) and isinstance(layer.keys, torch.Tensor)


def _layout_of(cache: DynamicCache) -> Layout | None:
    """Return which layers hold what after one token; None if all of them hold keys and values alone."""
    states = state_forms(cache.layers)
    if not states:
        return None
    return Layout(tuple(index for index, layer in enumerate(cache.layers) if _holds_keys(layer)), states)


def _is_beginning(one: Any, two: Any) -> bool:
    """Whether a layer holds the same for a first token, with or without another one after it."""
    for short, long in ((one.keys, two.keys), (one.values, two.values)):
        if long.shape[2] != short.shape[2] + 1:  # a full sliding window
            continue
        if not _is_close(long[:, :, :1], short):
            return False
    return True


def _is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether what a model keeps is the same but for rounding."""
    most = max(_LEAST, _STEPS * torch.finfo(expected.dtype).eps)
    found, expected = found.double(), expected.double()
    return not bool((found - expected).abs().max() > most * expected.abs().max())

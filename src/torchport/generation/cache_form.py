"""Finds the form of a model's cache, what it keeps from step to step, by running the model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from torchport.errors import CompileError

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
    """

    shapes: Sequence[tuple[int, int, int]]
    dtype: torch.dtype
    is_causal: bool = True


def find_cache_form(run: Callable[[torch.Tensor, DynamicCache], object], config: Any, name: str) -> CacheForm:
    """Return the form of a model's cache.

    Args:
        run: runs the model on tokens and an empty cache.
        config: the model's config.
        name: the model's name in messages.

    Raises:
        CompileError: the model keeps no keys and values, or more than those.
    """
    config = config.get_text_config(decoder=True)
    one, two = DynamicCache(config=config), DynamicCache(config=config)
    run(torch.tensor([[1]]), one)
    problem = what_else_is_kept(one)
    if problem:
        raise CompileError(problem, where=name, remedy="generate with the model itself")
    layers = [layer for layer in one.layers if layer.is_initialized]
    run(torch.tensor([[1, 0]]), two)
    pairs = zip(layers, [layer for layer in two.layers if layer.is_initialized], strict=True)
    is_causal = all(_is_beginning(*pair) for pair in pairs)
    kept = [tensor.dtype for layer in layers for tensor in (layer.keys, layer.values)]
    shapes = [(layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3]) for layer in layers]
    return CacheForm(shapes, functools.reduce(torch.promote_types, kept), is_causal)


def what_else_is_kept(cache: DynamicCache) -> str:
    """Return why a cache does not hold just keys and values after one token; empty if it does."""
    odd = [layer for layer in cache.layers if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer)]
    if odd:
        return f"the model keeps more than keys and values from step to step ({type(odd[0]).__name__})"
    if not any(layer.is_initialized for layer in cache.layers):
        return "the model keeps no keys and values from step to step"
    return ""


def _is_beginning(one: Any, two: Any) -> bool:
    """Whether a layer holds the same for a first token, with or without another one after it."""
    for short, long in ((one.keys, two.keys), (one.values, two.values)):
        if long.shape[2] != short.shape[2] + 1:  # a full sliding window
            continue
        most = max(_LEAST, _STEPS * torch.finfo(short.dtype).eps)
        short, first = short.double(), long[:, :, :1].double()
        if (short - first).abs().max() > most * short.abs().max():
            return False
    return True

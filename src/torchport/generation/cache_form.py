"""What a model keeps from step to step, found by running it: the form of its cache."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from torchport.errors import CompileError

# How far what a token leaves in the cache may be from that with another token after it, of the largest number
# in it: what rounding does, and scales that a quantized layer takes from all of its inputs.
_LEAST = 0.02
_STEPS = 8  # of the dtype, if they are more


@dataclass(frozen=True, slots=True)
class CacheForm:
    """The form of a cache.

    Args:
        shapes: the number of heads, and the widths of keys and of values, by layer.
        dtype: one that holds all keys and values exactly.
        is_causal: whether what it holds of a token depends on no token after it, so that tokens can be run in
            pieces.
    """

    shapes: Sequence[tuple[int, int, int]]
    dtype: torch.dtype
    is_causal: bool = True


def look_at_cache(run: Callable[[torch.Tensor, DynamicCache], object], config: Any, name: str) -> CacheForm:
    """Return the form of a model's cache.

    Args:
        run: runs the model on tokens and an empty cache.
        config: the model's.
        name: the model's name in messages.

    Raises:
        CompileError: it keeps something else than keys and values.
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
    """Return what a cache holds after a token that is not keys and values, in words; empty if nothing."""
    odd = [layer for layer in cache.layers if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer)]
    if odd:
        return f"the model keeps more than keys and values from step to step ({type(odd[0]).__name__})"
    if not any(layer.is_initialized for layer in cache.layers):
        return "the model keeps no keys and values from step to step"
    return ""


def _is_beginning(one: Any, two: Any) -> bool:
    """Whether a layer holds the same of a first token, whether or not another one comes after it."""
    for short, long in ((one.keys, two.keys), (one.values, two.values)):
        if long.shape[2] != short.shape[2] + 1:  # a window that holds no more
            continue
        most = max(_LEAST, _STEPS * torch.finfo(short.dtype).eps)
        short, first = short.double(), long[:, :, :1].double()
        if (short - first).abs().max() > most * short.abs().max():
            return False
    return True

"""Detects whether user code, which could change weights, may run between the steps of a `generate`."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig
from transformers.generation.streamers import AsyncTextIteratorStreamer, TextIteratorStreamer, TextStreamer

from torchport.generation.slot_cache import CrossCache, SlotCache
from torchport.torch_private import has_global_hooks

_LIBRARY = "transformers"
_DATA = frozenset(
    (type(None), bool, int, float, complex, str, bytes, torch.Tensor, nn.Parameter, torch.dtype, torch.device)
)
_OWN = frozenset((SlotCache, CrossCache))
_STREAMERS = frozenset((TextStreamer, TextIteratorStreamer, AsyncTextIteratorStreamer))
_FUNCTIONS = (types.FunctionType, types.MethodType)


def runs_no_user_code(model: Any, args: Iterable[object], kwargs: dict[str, object]) -> bool:
    """Whether a `generate` with these arguments runs only transformers' own code.

    False if there are stopping criteria or logits processors of any class, streamers that are not
    transformers' own, hooks on the model, methods set on the instance, or a model class outside transformers.
    """
    if not _is_of_library(model) or has_global_hooks():
        return False
    if _has_functions(model):
        return False
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return False
    return all(map(_is_data, (*args, *kwargs.values(), model.generation_config)))


def _is_data(value: object) -> bool:
    """Whether a value is plain data that runs no user code."""
    kind = type(value)
    if kind in _DATA or kind in _OWN:
        return True
    if kind in (list, tuple, set):
        return all(map(_is_data, value))  # type: ignore[call-overload]  # a container
    if kind in _STREAMERS:
        return _is_of_library(value.tokenizer) and not _has_functions(value)  # type: ignore[attr-defined]  # a streamer
    if kind is dict:
        return all(map(_is_data, value.values()))  # type: ignore[attr-defined]  # a dict
    return kind is GenerationConfig and all(map(_is_data, vars(value).values()))


def _is_of_library(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == _LIBRARY


def _has_functions(value: object) -> bool:
    """Whether functions or methods were set on the instance."""
    return any(isinstance(each, _FUNCTIONS) for each in vars(value).values())

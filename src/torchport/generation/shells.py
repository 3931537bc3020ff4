"""Objects that share all that a model has, and are called in another way: nothing is put into the model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutput

from torchport.errors import CompileError
from torchport.generation.model_inputs import MASK
from torchport.generation.slot_cache import CrossCache, PastCache
from torchport.torch_private import before_compiling


def shell_of(model: nn.Module, methods: Mapping[str, Any]) -> Any:
    """Return an object of a subclass of the model's class, with other methods and the model's own state."""
    kind = type(model)
    made: Any = type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__})
    shell = made.__new__(made)
    vars(shell).update(vars(model))
    for name in methods:  # what was set on the model itself, such as a compiled forward
        vars(shell).pop(name, None)
    return shell


def forward_of(model: nn.Module) -> Callable[..., Any]:
    """Return the function that a model's forward is: its class's, or that which was set on the model.

    Raises:
        CompileError: what was set there is not a method of the model.
    """
    own = before_compiling(vars(model).get("forward"))
    if own is None:
        return type(model).forward
    if inspect.ismethod(own) and own.__self__ is model:
        return own.__func__
    raise CompileError(
        "the model's forward was replaced by a function that is not a method of the model",
        where=type(model).__name__,
        remedy="set a method, with types.MethodType, or write a subclass",
    )


def keeps_logits(model: nn.Module) -> bool:
    """Whether a model can be told which tokens' logits are wanted."""
    return "logits_to_keep" in inspect.signature(forward_of(model)).parameters


def _call_of(model: nn.Module, call: Callable[..., object]) -> nn.Module:
    """Return the model called in another way, without its own hooks: those see the library's calls of it."""
    made: nn.Module = shell_of(model, {"forward": call})
    for name, value in vars(made).items():
        if name.startswith(("_forward_hooks", "_forward_pre_hooks")):
            vars(made)[name] = type(value)()
    return made


def cached_call(model: nn.Module, most: int = 0) -> nn.Module:
    """Return the model without effects: new tokens and the past in, logits, new keys and values out.

    Its arguments are the tokens, what goes with them (masks, positions), how many tokens came before, which
    token's logits are wanted, and the keys and values of the past by layer.

    Args:
        model: the model.
        most: how many slots there are at most, if any number of tokens is to be taken. The logits are then
            the last token's.
    """
    forward = forward_of(model)
    keeps = keeps_logits(model)

    def call(
        self: nn.Module,
        ids: torch.Tensor,
        given: Mapping[str, object],
        start: torch.Tensor,
        last: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        past = PastCache(keys, values, start, most)
        wanted = {"logits_to_keep": 1 if most else last} if keeps else {}
        given = {name: _zero_or_one(value) if name == MASK else value for name, value in given.items()}
        output = forward(self, input_ids=ids, past_key_values=past, use_cache=True, **given, **wanted)
        if not most:
            return (output.logits, *past.new)
        # They may be parts of one product, and a program for all sizes gives no results that share memory.
        plain = torch.contiguous_format
        made_keys, made_values = [[new.clone(memory_format=plain) for new in each] for each in past.new]
        return output.logits, made_keys, made_values

    return _call_of(model, call)


def _zero_or_one(mask: object) -> object:
    """Return a mask of the tokens that are there as it is; the graph then shows what numbers it holds."""
    is_row = isinstance(mask, torch.Tensor) and mask.dim() == 2 and not mask.is_floating_point()
    return mask.clamp(0, 1) if isinstance(mask, torch.Tensor) and is_row else mask


def encoder_call(model: nn.Module) -> nn.Module:
    """Return the encoder: inputs in; its result, and the keys and values that the decoder sees, out."""
    forward = forward_of(model)

    def call(
        self: nn.Module, given: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        some = next(iter(given.values()))
        cache = CrossCache(DynamicCache())
        # What the decoder makes of a first token is not asked for, and no part of the graph.
        first = torch.zeros(some.shape[0], 1, dtype=torch.long, device=some.device)
        output = forward(self, decoder_input_ids=first, past_key_values=cache, use_cache=True, **given)
        return (output.encoder_last_hidden_state, *cache.cross)

    return _call_of(model, call)


def decoder_call(model: nn.Module) -> nn.Module:
    """Return the decoder without effects: as `cached_call`, with what it sees of the encoder's result."""
    forward = forward_of(model)

    def call(
        self: nn.Module,
        ids: torch.Tensor,
        given: Mapping[str, object],
        start: torch.Tensor,
        past: tuple[list[torch.Tensor], list[torch.Tensor]],
        cross: tuple[list[torch.Tensor], list[torch.Tensor]],
        width: torch.Tensor,
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        own = PastCache(*past, start)
        keys = cross[0][0]
        hidden = width.expand(
            keys.shape[0], keys.shape[2], -1
        )  # of the encoder's shape: only that is looked at
        output = forward(
            self,
            decoder_input_ids=ids,
            encoder_outputs=BaseModelOutput(last_hidden_state=hidden),
            past_key_values=CrossCache(own, *cross),
            use_cache=True,
            **given,
        )
        return (output.logits, *own.new)

    return _call_of(model, call)

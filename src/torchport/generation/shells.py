"""Objects that share a model's state and replace some of its methods: the model itself is not modified."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutput

from torchport.errors import CompileError
from torchport.generation.model_inputs import MASK
from torchport.generation.past_cache import PastCache
from torchport.generation.recurrent_states import Layout
from torchport.generation.slot_cache import CrossCache
from torchport.torch_private import before_compiling


def shell_of(model: nn.Module, methods: Mapping[str, Any]) -> Any:
    """Return an instance of a subclass of the model's class that shares its state, some methods replaced."""
    kind = type(model)
    made: Any = type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__})
    shell = made.__new__(made)
    vars(shell).update(vars(model))
    for name in methods:  # what was set on the model itself, such as a compiled forward
        vars(shell).pop(name, None)
    return shell


def forward_of(model: nn.Module) -> Callable[..., Any]:
    """Return the function behind a model's forward: its class's, or the one set on the instance.

    Raises:
        CompileError: the forward set on the instance is not a method of the model.
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


def method_like(original: Callable[..., object], function: Callable[..., object]) -> Callable[..., object]:
    """Return a method that calls a function by keywords, with the signature of `original`.

    transformers inspects the signature, and calls from a loop of the user's may be positional.
    """
    parameters = inspect.signature(original).parameters.values()
    names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD][1:]

    @functools.wraps(original)
    def method(_: object, *args: Any, **kwargs: Any) -> object:
        return function(*args[len(names) :], **dict(zip(names, args, strict=False)), **kwargs)

    return method


def keeps_logits(model: nn.Module) -> bool:
    """Whether a model's forward takes `logits_to_keep`: which tokens' logits to return."""
    return "logits_to_keep" in inspect.signature(forward_of(model)).parameters


def _call_of(model: nn.Module, call: Callable[..., object]) -> nn.Module:
    """Return the model with another forward and without its hooks: those run on transformers' calls of it."""
    made: nn.Module = shell_of(model, {"forward": call})
    for name, value in vars(made).items():
        if name.startswith(("_forward_hooks", "_forward_pre_hooks")):
            vars(made)[name] = type(value)()
    return made


def cached_call(
    model: nn.Module, most: int = 0, layout: Callable[[], Layout | None] = lambda: None
) -> nn.Module:
    """Return the model as a pure function: new tokens and the past in; logits, new keys and values out.

    Its arguments are the tokens, their masks and positions, how many tokens came before, which token's logits
    to return, and the past keys and values by layer. Recurrent states follow in both.

    Args:
        model: the model.
        most: the maximum number of slots, if the call is to take any number of tokens. The logits are then
            the last token's.
        layout: returns which layers keep what, if some keep recurrent states; asked on each call.
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
        states: Sequence[torch.Tensor] = (),
    ) -> tuple[Any, ...]:
        past = PastCache(keys, values, start, most, layout(), states)
        wanted = {"logits_to_keep": 1 if most else last} if keeps else {}
        given = {name: _zero_or_one(value) if name == MASK else value for name, value in given.items()}
        output = forward(self, input_ids=ids, past_key_values=past, use_cache=True, **given, **wanted)
        if not most:
            return (output.logits, *past.new)
        # They may be slices of one matmul's result, and a program for all sizes cannot return aliases.
        plain = torch.contiguous_format
        return output.logits, *[[new.clone(memory_format=plain) for new in each] for each in past.new]

    return _call_of(model, call)


def _zero_or_one(mask: object) -> object:
    """Clamp a 2D mask, which holds 0 and 1 only: a no-op that shows its range in the graph."""
    is_row = isinstance(mask, torch.Tensor) and mask.dim() == 2 and not mask.is_floating_point()
    return mask.clamp(0, 1) if isinstance(mask, torch.Tensor) and is_row else mask


def encoder_call(model: nn.Module) -> nn.Module:
    """Return the encoder as a call: inputs in; its output, and the cross-attention keys and values, out."""
    forward = forward_of(model)

    def call(
        self: nn.Module, given: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        some = next(iter(given.values()))
        cache = CrossCache(DynamicCache())
        # The decoder's output for a first token is not returned, so it is dead code in the graph.
        first = torch.zeros(some.shape[0], 1, dtype=torch.long, device=some.device)
        output = forward(self, decoder_input_ids=first, past_key_values=cache, use_cache=True, **given)
        return (output.encoder_last_hidden_state, *cache.cross)

    return _call_of(model, call)


def decoder_call(model: nn.Module) -> nn.Module:
    """Return the decoder as a pure function: like `cached_call`, with the cross-attention keys and values."""
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
        # Only the shape of the encoder's output is read.
        hidden = width.expand(keys.shape[0], keys.shape[2], -1)
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

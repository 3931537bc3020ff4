"""Times on the target whether a model is slower with quantized weights; generative models by their tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from torchport import targets
from torchport.compiler import compile
from torchport.compiler.speed_trial import seconds_of
from torchport.compiler.timing import time_in_turns
from torchport.errors import TorchportError
from torchport.generation import can_generate

_log = logging.getLogger(__name__)

_Call = tuple[tuple[object, ...], dict[str, object]]
_SLOWER = 1.03  # ratio of the fastest calls, quantized to float, above which the quantized model is slower
_SECONDS = 2.0  # for timing
_TOKENS = 8  # generated in a call


@dataclass(frozen=True, slots=True)
class WeightSpeed:
    """The timings on this machine, if they could be measured.

    Args:
        seconds_float, seconds: the time per call or token, in floats and quantized.
        unit: a call or a token, in words.
        note: why nothing was measured, or what was.
    """

    seconds_float: float | None = None
    seconds: float | None = None
    unit: str = "a call"
    note: str = ""

    @property
    def is_slower(self) -> bool:
        """Whether the quantized model is slower, by more than measurement noise."""
        if self.seconds is None or self.seconds_float is None:
            return False
        return self.seconds > _SLOWER * self.seconds_float

    @property
    def detail(self) -> str:
        """Both times, in words."""
        assert self.seconds is not None
        assert self.seconds_float is not None
        own, floats = 1e3 * self.seconds, 1e3 * self.seconds_float
        return f"{self.unit} takes {own:.3g} ms with quantized weights, {floats:.3g} ms in floats"


def time_weights(model: nn.Module, made: nn.Module, call: _Call, target: str) -> WeightSpeed:
    """Compile two models and time them alternately; the fastest call of each counts.

    Args:
        model: the model in floats.
        made: the quantized model.
        call: the inputs of both.
        target: the target's name.
    """
    if not targets.find(target).is_timed:
        return WeightSpeed(note=f"not timed: {target} is not timed on this machine")
    ids = _prompt(model, call)
    try:
        if ids is None:
            calls = [_compiled(each, call, target) for each in (model, made)]
        else:
            calls = [_generating(each, ids, target) for each in (model, made)]
        with torch.no_grad():
            floats, own = time_in_turns(
                lambda: seconds_of(calls[0]), lambda: seconds_of(calls[1]), budget=_SECONDS
            )
    except TorchportError as error:
        _log.info("the model cannot be timed on %s: %s", target, error)
        return WeightSpeed(note=f"not timed: {error.what}")
    if ids is None:
        return WeightSpeed(min(floats), min(own))
    note = f"times are per token, generating {_TOKENS}"
    return WeightSpeed(min(floats) / _TOKENS, min(own) / _TOKENS, "a token", note)


def _prompt(model: nn.Module, call: _Call) -> torch.Tensor | None:
    """Return the token ids to generate from, or None if the model does not generate."""
    if not can_generate(model):
        return None
    args, kwargs = call
    ids = kwargs.get("input_ids", args[0] if args else None)
    if not isinstance(ids, torch.Tensor) or ids.is_floating_point() or ids.dim() != 2:
        return None
    return ids[:1]


def _compiled(module: nn.Module, call: _Call, target: str) -> Callable[[], object]:
    args, kwargs = call
    made = compile(module, args, kwargs, target=target, options={"speed_trial": False})
    with torch.no_grad():
        made(*args, **kwargs)
    return lambda: made(*args, **kwargs)


def _generating(module: nn.Module, ids: torch.Tensor, target: str) -> Callable[[], object]:
    made = compile(
        module,
        (ids,),
        target=target,
        options={"speed_trial": False},
        max_length=ids.shape[1] + _TOKENS,
    )
    wanted = {"min_new_tokens": _TOKENS, "max_new_tokens": _TOKENS, "do_sample": False}
    mask = torch.ones_like(ids)

    def generate() -> object:
        loop: Any = made.generate  # the library's own loop
        return loop(ids, attention_mask=mask, **wanted)

    generate()
    return generate

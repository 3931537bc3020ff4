"""`auto` for a model that generates: engines are tried on a step, and the best must then generate faster.

What the trials time is a program, on a cache of a fixed length. What the user gets is the library's loop
around it, and eager torch has a cache that grows. So the best engine generates some tokens here, in turns
with the model itself.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from torchport.capture import CapturedModel, buffers_kept
from torchport.compiler.specialise import Specialiser
from torchport.compiler.timing import time_in_turns
from torchport.errors import one_line
from torchport.records import EngineTry
from torchport.targets.target import Options, Target

_log = logging.getLogger(__name__)

_TOKENS = 8  # that are generated in a turn, where there is room for them after a prompt of one
_SECONDS = 2.0  # about how long to time for


def example_prompt(model: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> torch.Tensor:
    """Return what a model generates from: the main one of its example inputs, or one token."""
    found = kwargs.get(str(model.main_input_name), args[0] if args else None)
    if not isinstance(found, torch.Tensor) or not found.numel():
        return torch.zeros(1, 1, dtype=torch.long, device=model.device)
    return found


def capture_step(
    model: Any, prompt: torch.Tensor, max_length: int | None, target: Target, options: Options, name: str
) -> CapturedModel | None:
    """Return a step of `generate`, captured: one token and the cache; None if there is no such thing.

    Args:
        model: the model.
        prompt: what it generates from.
        max_length: how many tokens a sequence may have.
        target, options, name: as for the model's own forward.
    """
    from torchport.generation.make_generation import make_generation  # needs the model's library

    calls: list[_Recorded] = []

    def recording(module: nn.Module, _: object) -> _Recorded:
        calls.append(_Recorded(module))
        return calls[-1]

    try:
        generation = make_generation(model, recording, max_length=max_length, name=name)
        with _left_as_it_is(model):
            generation.generate(_shortened(model, prompt, max_length, 2), **_wanted(2))
        step = calls[-1]
        return Specialiser(step.module, target, options, name).capture_for(step.args, {})
    except Exception as error:  # noqa: BLE001  # it is raised again when the model generates
        _log.info("%s: engines are tried on a call and not on a step: %s", name, one_line(error))
        return None


class _Recorded:
    """A call of `generate` that eager torch runs, and what it was last called with."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.args: tuple[Any, ...] = ()

    def __call__(self, *args: Any) -> Any:
        self.args = args
        return self.module(*args)


def time_tokens(
    row: EngineTry, compiled: Any, model: Any, prompt: torch.Tensor, max_length: int | None
) -> EngineTry:
    """Return an engine's row with the times that a token takes when it generates, and with eager torch.

    Args:
        row: what came of the engine's trial.
        compiled: the model compiled for it.
        model: the model itself.
        prompt: what both generate from.
        max_length: how many tokens a sequence may have.
    """
    tokens = max(min(_TOKENS, _limit(max_length) - 1), 2)
    given = _shortened(model, prompt, max_length, tokens)
    with _left_as_it_is(model):
        own, its = time_in_turns(
            _clock(compiled.generate, given, tokens),
            _clock(model.generate, given, tokens),
            warmup=1,
            budget=_SECONDS,
        )
    return replace(
        row,
        unit="token",
        seconds=statistics.median(own),
        eager_seconds=statistics.median(its),
        fastest=min(own),
        eager_fastest=min(its),
    )


@contextmanager
def _left_as_it_is(model: nn.Module) -> Iterator[None]:
    """Keep the model's buffers and torch's random numbers from what runs meanwhile."""
    with buffers_kept(model), torch.random.fork_rng(devices=()):
        yield


def _clock(generate: Callable[..., Any], prompt: torch.Tensor, tokens: int) -> Callable[[], float]:
    def seconds() -> float:
        heard = _Heard()
        generate(prompt, streamer=heard, **_wanted(tokens))
        first, *_, last = heard.times
        return (last - first) / (len(heard.times) - 1)

    return seconds


class _Heard:
    """A streamer that notes when tokens come."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: object) -> None:
        """Note the time; the first is the prompt's, which is there before any token is computed."""
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Leave the prompt, and what the first token took, which is the prompt's."""
        del self.times[0]


def _wanted(tokens: int) -> dict[str, object]:
    return {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "num_beams": 1}


def _shortened(model: Any, prompt: torch.Tensor, max_length: int | None, tokens: int) -> torch.Tensor:
    """Return a prompt after which there is room for tokens."""
    if prompt.dim() != 2 or prompt.is_floating_point() or model.config.is_encoder_decoder:
        return prompt
    return prompt[:, : max(_limit(max_length) - tokens, 1)]


def _limit(max_length: int | None) -> int:
    """Return how many tokens a sequence may have."""
    from torchport.generation.generation import MAX_LENGTH

    return max_length or MAX_LENGTH

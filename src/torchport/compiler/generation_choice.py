"""`auto` for a model that generates: tries engines on a step, and then checks that the best generates faster.

The trials time a program on a cache of a fixed length. But users run transformers' loop around it, and eager
torch has a cache that grows. So the best engine generates some tokens here, in turns with the model itself.
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

_TOKENS = 8  # tokens generated in each turn, if max_length allows it
_SECONDS = 2.0  # approximate time budget


def example_prompt(model: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> torch.Tensor:
    """Return an example prompt: the model's main example input, or one token if there is none."""
    found = kwargs.get(str(model.main_input_name), args[0] if args else None)
    if not isinstance(found, torch.Tensor) or not found.numel():
        return torch.zeros(1, 1, dtype=torch.long, device=model.device)
    return found


def capture_step(
    model: Any, prompt: torch.Tensor, max_length: int | None, target: Target, options: Options, name: str
) -> CapturedModel | None:
    """Capture a step of `generate`, one token with a KV cache; return None if that fails.

    Args:
        model: the model.
        prompt: what it generates from.
        max_length: the maximum number of tokens in a sequence.
        target, options, name: as for the model's own forward.
    """
    from torchport.generation.make_generation import make_generation  # needs transformers

    calls: list[_Recorded] = []

    def recording(module: nn.Module, _: object) -> _Recorded:
        calls.append(_Recorded(module))
        return calls[-1]

    try:
        generation = make_generation(model, recording, max_length=max_length, name=name)
        with _preserving_state(model):
            generation.generate(_shortened(model, prompt, max_length, 2), **_wanted(2))
        step = calls[-1]
        return Specialiser(step.module, target, options, name).capture_for(step.args, {})
    except Exception as error:  # noqa: BLE001  # it is raised again when the model generates
        _log.info("%s: engines are tried on a whole call instead of a step: %s", name, one_line(error))
        return None


class _Recorded:
    """A call of `generate` that runs with eager torch and records its last arguments."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.args: tuple[Any, ...] = ()

    def __call__(self, *args: Any) -> Any:
        self.args = args
        return self.module(*args)


def time_tokens(
    row: EngineTry, compiled: Any, model: Any, prompt: torch.Tensor, max_length: int | None
) -> EngineTry:
    """Return an engine's row with the measured times per generated token, its own and eager torch's.

    Args:
        row: the result of the engine's trial.
        compiled: the model compiled for it.
        model: the model itself.
        prompt: what both generate from.
        max_length: the maximum number of tokens in a sequence.
    """
    tokens = max(min(_TOKENS, _limit(max_length) - 1), 2)
    given = _shortened(model, prompt, max_length, tokens)
    with _preserving_state(model):
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
def _preserving_state(model: nn.Module) -> Iterator[None]:
    """Restore the model's buffers and torch's random state on exit."""
    with buffers_kept(model), torch.random.fork_rng(devices=()):
        yield


def _clock(generate: Callable[..., Any], prompt: torch.Tensor, tokens: int) -> Callable[[], float]:
    def seconds() -> float:
        streamer = _TimingStreamer()
        generate(prompt, streamer=streamer, **_wanted(tokens))
        first, *_, last = streamer.times
        return (last - first) / (len(streamer.times) - 1)

    return seconds


class _TimingStreamer:
    """A streamer that records when each token arrives."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: object) -> None:
        """Record the time; the first is the prompt's, which arrives before any token is computed."""
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Drop the prompt's time, so that the first interval, which includes the prefill, does not count."""
        del self.times[0]


def _wanted(tokens: int) -> dict[str, object]:
    return {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "num_beams": 1}


def _shortened(model: Any, prompt: torch.Tensor, max_length: int | None, tokens: int) -> torch.Tensor:
    """Return a prompt, cut so that `tokens` more fit."""
    if prompt.dim() != 2 or prompt.is_floating_point() or model.config.is_encoder_decoder:
        return prompt
    return prompt[:, : max(_limit(max_length) - tokens, 1)]


def _limit(max_length: int | None) -> int:
    """Return the maximum number of tokens in a sequence."""
    from torchport.generation.generation import MAX_LENGTH

    return max_length or MAX_LENGTH

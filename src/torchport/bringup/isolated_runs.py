"""Isolates two runs of one model from each other: copied inputs, the same random seed, restored buffers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch

from torchport.capture import buffers_kept
from torchport.verification.copied_tensors import copy_tensors
from torchport.zoo.model import Model


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a call.

    Args:
        result: its result.
        inputs: its inputs after the call, by name.
        seconds: how long it took.
    """

    result: object
    inputs: dict[str, object]
    seconds: float


def run_isolated(call: Callable[..., object], model: Model) -> RunOutcome:
    """Call a model, or its compiled version, without lasting side effects.

    Args:
        call: the module, or the compiled model.
        model: the model whose inputs are passed, and whose buffers may be mutated.
    """
    args, kwargs = copy_inputs(model)
    with torch.random.fork_rng(devices=[]), buffers_kept(model.module):
        torch.manual_seed(0)
        seconds, result = timed(call, args, kwargs)
        # The result may be a buffer, which is about to be restored.
        return RunOutcome(copy_tensors(result), {"args": args, **kwargs}, seconds)


def timed(
    call: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[float, object]:
    """Call without gradients; return the duration in seconds, and the result."""
    with torch.no_grad():
        start = time.perf_counter()
        result = call(*args, **kwargs)
        return time.perf_counter() - start, result


def copy_inputs(model: Model) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return a model's inputs with copied tensors: a model may mutate its inputs."""
    copied = copy_tensors((model.args, dict(model.kwargs)))
    return cast("tuple[tuple[object, ...], dict[str, object]]", copied)  # copying keeps the structure

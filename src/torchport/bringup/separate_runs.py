"""Keeps two runs of one model from disturbing each other: own inputs, the same random numbers and buffers."""

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
    """What a call did.

    Args:
        result: what it returned.
        inputs: its inputs as it left them, by name.
        seconds: how long it took.
    """

    result: object
    inputs: dict[str, object]
    seconds: float


def run_alone(call: Callable[..., object], model: Model) -> RunOutcome:
    """Call a model, or what was compiled from it, so that nothing of the call is left behind.

    Args:
        call: the module, or the compiled one.
        model: whose inputs it is called with, and whose buffers it may write.
    """
    args, kwargs = copy_inputs(model)
    with torch.random.fork_rng(devices=[]), buffers_kept(model.module):
        torch.manual_seed(0)
        seconds, result = timed(call, args, kwargs)
        # The result may be a buffer, which is about to be put back as it was.
        return RunOutcome(copy_tensors(result), {"args": args, **kwargs}, seconds)


def timed(
    call: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[float, object]:
    """Call without gradients; return the seconds that it took, and the result."""
    with torch.no_grad():
        start = time.perf_counter()
        result = call(*args, **kwargs)
        return time.perf_counter() - start, result


def copy_inputs(model: Model) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return a model's inputs with tensors of their own: a model may write into its inputs."""
    copied = copy_tensors((model.args, dict(model.kwargs)))
    return cast("tuple[tuple[object, ...], dict[str, object]]", copied)  # as it came

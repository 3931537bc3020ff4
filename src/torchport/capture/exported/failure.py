"""Explains why a model could not be captured: the cause, the source line, and what to do."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from torchport.capture.untouched import StandIn, copy_of
from torchport.capture.user_frames import user_line
from torchport.errors import CaptureError, message_of
from torchport.torch_private import DataDependentOutputException, DynamicOutputShapeException

_DATA_DEPENDENT = re.compile(
    r"data-dependent|DataDependent|_local_scalar_dense|Could not guard|\.item\(\)|\.tolist\(\)|"
    r"Cannot call numel|unbacked|boolean value of Tensor",
    re.IGNORECASE,
)


def explain_failure(
    name: str,
    module: nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    error: Exception,
) -> CaptureError:
    """Return the error that tells the user what made the capture fail."""
    own = _error_of_the_model(module, args, kwargs)
    if own is not None:
        return CaptureError(
            f"the model raises {type(own).__name__}: {_first_lines(own)}",
            where=_at(name, user_line(own)),
            remedy="call the model on these inputs without torchport, and fix it or the inputs first",
        )
    line = user_line(error)
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)) or (
        _DATA_DEPENDENT.search(message_of(error))
    ):
        return CaptureError(
            f"the model's control flow depends on the values of a tensor ({_first_lines(error)})",
            where=_at(name, line),
            remedy='use torch.compile(model, backend="torchport"), which breaks the graph there, '
            "or write the branch with torch.where or torch.cond",
        )
    return CaptureError(
        f"torch.export refuses the model: {type(error).__name__}: {_first_lines(error)}",
        where=_at(name, line),
        remedy='use torch.compile(model, backend="torchport"), which breaks the graph there',
    )


def _error_of_the_model(
    module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> Exception | None:
    """Return what the model itself raises on these inputs, if it does."""
    try:
        stand_in = StandIn(module, copy_of)
        with torch.no_grad():
            stand_in.module(*copy.deepcopy(tuple(args)), **copy.deepcopy(dict(kwargs)))
    except Exception as error:  # noqa: BLE001  # whatever the model raises is the answer
        return None if _is_due_to_meta_tensors(error, module) else error
    return None


def _is_due_to_meta_tensors(error: Exception, module: nn.Module) -> bool:
    """Whether an error arises only because the model is on the meta device, without values."""
    held = (*module.parameters(), *module.buffers())
    return any(tensor.is_meta for tensor in held) and (
        isinstance(error, NotImplementedError) or "meta tensor" in message_of(error)
    )


def _first_lines(error: BaseException, limit: int = 300) -> str:
    text = " ".join(message_of(error).strip().split("\n\n")[0].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _at(name: str, line: str) -> str:
    return f"{name}, {line}" if line else name

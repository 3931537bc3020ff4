"""Adds the arguments of a model's call to a graph as placeholders, whatever their structure."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy
import torch
from torch import fx, nn

from torchport.capture.calls.fake_calls import FakeCalls, RealCalls
from torchport.capture.calls.graph_functions import hold
from torchport.capture.calls.recorder import Recorder
from torchport.capture.calls.traced_calls import named_arguments
from torchport.capture.calls.tracked_numbers import Origin, track
from torchport.errors import CaptureError
from torchport.structure import flatten

Path: TypeAlias = "tuple[tuple[Callable[..., object], Any], ...]"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the model's call.

    Args:
        name: the name of its parameter.
        value: the example value.
        keyword: whether it was passed by keyword.
    """

    name: str
    value: object
    keyword: bool


def list_arguments(model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Argument]:
    """Return the arguments of a call, with their parameters' names."""
    named = named_arguments(type(model).forward, (model, *args), kwargs)[1:]
    return [Argument(name, value, name in kwargs) for name, value in named]


def place_inputs(
    recorder: Recorder, calls: FakeCalls | RealCalls, arguments: list[Argument]
) -> tuple[list[object], dict[str, object]]:
    """Add a placeholder for each argument, and return the arguments to call the model with."""
    args: list[object] = []
    kwargs: dict[str, object] = {}
    placed = [(argument, _placeholder(recorder, argument)) for argument in arguments]
    for argument, node in placed:
        value = _stand_in(recorder, calls, argument, node)
        if argument.keyword:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs


def _placeholder(recorder: Recorder, argument: Argument) -> fx.Node:
    node = recorder.graph.placeholder(argument.name)
    recorder.call.names[node] = argument.name
    recorder.describe(node, None, None)
    return node


def _stand_in(recorder: Recorder, calls: FakeCalls | RealCalls, argument: Argument, node: fx.Node) -> object:
    """Return what to pass to the model for an argument: the same value, with tracked tensors and numbers."""
    value: Any = argument.value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        node.meta["val"] = value
        return track(value, Origin("", (), node), recorder)
    flat = flatten(value)
    stand_ins = [calls.convert(leaf) for leaf in flat.leaves]
    if isinstance(value, torch.Tensor):
        node.meta.update(val=stand_ins[0], input=True)
        recorder.tensors.register(stand_ins[0], node)
        return stand_ins[0]
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        raise CaptureError(
            f"the input {argument.name!r} is a numpy array, which cannot be traced",
            remedy="pass a tensor instead: torch.from_numpy(array)",
        )
    if not stand_ins:
        if _is_literal(value):
            check = recorder.graph.call_function(hold, (node, value, argument.name))
            recorder.describe(check, None, None)
        node.meta["val"] = value
        return value
    steps = dict(_steps(value, ()))
    for leaf, stand_in in zip(flat.leaves, stand_ins, strict=True):
        part = node
        for step, key in steps[id(leaf)]:
            part = recorder.graph.call_function(step, (part, key))
            recorder.describe(part, stand_in, None)
        part.meta["input"] = True
        recorder.tensors.register(stand_in, part)
    node.meta["val"] = None
    return flat.structure.rebuild(stand_ins)


def _is_literal(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_literal(item) for item in value)
    if isinstance(value, dict):
        return all(_is_literal(item) for item in (*value, *value.values()))
    return value is None or isinstance(value, (bool, int, float, str, torch.dtype))


def _steps(value: object, path: Path) -> Iterator[tuple[int, Path]]:
    """Yield each tensor's id in a value, with the access path that leads to the tensor."""
    if isinstance(value, torch.Tensor):
        yield id(value), path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _steps(item, (*path, (operator.getitem, key)))
    elif isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        for index, item in enumerate(value):
            yield from _steps(item, (*path, (operator.getitem, index)))
    elif hasattr(value, "_fields"):
        for name in value._fields:
            yield from _steps(getattr(value, name), (*path, (getattr, name)))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _steps(getattr(value, field.name), (*path, (getattr, field.name)))
    else:
        for name, item in getattr(value, "__dict__", {}).items():
            yield from _steps(item, (*path, (getattr, name)))

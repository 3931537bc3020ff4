"""Turns a model's result into the output of a graph: nodes construct its containers and objects."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from torchport.capture.calls.graph_functions import assemble, named
from torchport.capture.calls.recorder import Recorder
from torchport.capture.calls.tracked_numbers import Tracked
from torchport.errors import CaptureError

_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout,
    torch.memory_format, enum.Enum,
)  # fmt: skip


def output_of(recorder: Recorder, value: Any, name: str) -> fx.node.Argument:
    """Return a result with its tensors and objects replaced by nodes.

    Raises:
        CaptureError: the result contains an object that generated code cannot construct.
    """
    if isinstance(value, (torch.Tensor, *Tracked)):
        return recorder.node_of(value, None)
    if isinstance(value, _PLAIN):
        return value  # type: ignore[return-value]  # graphs may contain enums, too
    if isinstance(value, (type, types.FunctionType)):
        return _node(recorder, named, (value.__module__, value.__qualname__), {})
    if type(value) in (list, tuple):
        items = [output_of(recorder, item, name) for item in value]
        return items if type(value) is list else tuple(items)
    if type(value) is dict:
        return {key: output_of(recorder, item, name) for key, item in value.items()}
    if hasattr(value, "_fields") or isinstance(value, torch.Size):
        parts = tuple(output_of(recorder, item, name) for item in value)
        return _node(recorder, type(value), parts, {})
    if type(value).__module__ == "torch.return_types":
        items = [output_of(recorder, item, name) for item in value]
        whole = _source(items, value)
        return whole if whole is not None else _node(recorder, type(value), (tuple(items),), {})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass(recorder, value, name)
    if type(value) is OrderedDict:
        entries = {key: output_of(recorder, item, name) for key, item in value.items()}
        return _node(recorder, OrderedDict, (entries,), {})
    if isinstance(value, (dict, list, tuple, set)):
        raise _unknown(value, name)
    if hasattr(value, "__dict__"):
        state = {key: output_of(recorder, item, name) for key, item in vars(value).items()}
        kind = output_of(recorder, type(value), name)
        return _node(recorder, assemble, (kind, state), {})
    raise _unknown(value, name)


def _source(items: list[fx.node.Argument], value: object) -> fx.Node | None:
    """Return the node whose result is the value as a whole, given its items' nodes; None if there is none."""
    first = items[0]
    source = first.args[0] if isinstance(first, fx.Node) and "item" in first.meta else None
    return source if isinstance(source, fx.Node) and source.meta.get("val") is value else None


def _dataclass(recorder: Recorder, value: object, name: str) -> fx.Node:
    assert dataclasses.is_dataclass(value)
    given = {
        field.name: output_of(recorder, getattr(value, field.name), name)
        for field in dataclasses.fields(value)
        if field.init and not _is_default(field, getattr(value, field.name))
    }
    return _node(recorder, type(value), (), given)


def _is_default(field: dataclasses.Field[object], value: object) -> bool:
    return value is None and field.default is None


def _node(
    recorder: Recorder,
    target: Callable[..., object],
    args: tuple[fx.node.Argument, ...],
    kwargs: dict[str, fx.node.Argument],
) -> fx.Node:
    node = recorder.graph.call_function(target, args, kwargs)
    recorder.describe(node, None, None)
    return node


def _unknown(value: object, name: str) -> CaptureError:
    return CaptureError(
        f"the model returns a {type(value).__name__}, which generated code cannot construct",
        where=name,
        remedy="return tensors, tuples, dicts or dataclasses of them",
    )

"""Calls of ATen ops as JSON, and back: data, whatever wrote it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

import torch
from torch import fx
from torch._ops import OpOverload

from torchport.errors import TargetError

_TORCH_TYPES = (torch.dtype, torch.device, torch.layout, torch.memory_format)

# Functions on sizes, in graphs that hold for any shape.
_ON_SIZES: dict[str, Callable[..., object]] = {
    f"size.{function.__name__}": function
    for function in (
        operator.add,
        operator.sub,
        operator.mul,
        operator.floordiv,
        operator.truediv,
        operator.mod,
        operator.neg,
        operator.eq,
        operator.ne,
        operator.lt,
        operator.le,
        operator.gt,
        operator.ge,
        operator.and_,
        operator.or_,
        torch.sym_max,
        torch.sym_min,
        torch.sym_float,
        torch.sym_int,
        torch.sym_not,
        math.ceil,
        math.floor,
        math.trunc,
    )
}
_NAMES_ON_SIZES = {function: name for name, function in _ON_SIZES.items()}

# Ops that reach outside of their tensors: they are never called because a file says so.
_REACH_OUT = ("aten.from_file",)


def encode_call(node: fx.Node) -> dict[str, object]:
    """Return a node's call as JSON.

    Raises:
        TargetError: it calls something else than an op, or an argument has no JSON form.
    """
    target = node.target
    if target is operator.getitem:
        name = "getitem"
    elif isinstance(target, OpOverload):
        name = str(target)
    elif target in _NAMES_ON_SIZES:
        name = _NAMES_ON_SIZES[target]
    else:
        raise TargetError(f"{target} is not an ATen op", where=node.name)
    return {
        "name": node.name,
        "op": name,
        "args": [encode(argument) for argument in node.args],
        "kwargs": {key: encode(argument) for key, argument in node.kwargs.items()},
    }


def encode(argument: object) -> object:
    """Return an argument's JSON; nodes and torch's own types become one-entry objects."""
    if isinstance(argument, fx.Node):
        return {"node": argument.name}
    if isinstance(argument, (list, tuple)):
        return [encode(item) for item in argument]
    if isinstance(argument, _TORCH_TYPES):
        return {type(argument).__name__: str(argument).removeprefix("torch.")}
    if isinstance(argument, float) and argument in (float("inf"), float("-inf")):
        return {"float": str(argument)}
    if isinstance(argument, float) and argument != argument:
        return {"float": "nan"}
    if isinstance(argument, complex):
        return {"complex": [argument.real, argument.imag]}
    if argument is None or isinstance(argument, (bool, int, float, str)):
        return argument
    raise TargetError(f"an argument of type {type(argument).__name__} cannot be written down")


def find_op(name: str) -> Callable[..., object]:
    """Return the op of that name.

    Raises:
        TargetError: this torch has none, or it is one that reaches outside of its tensors.
    """
    if name == "getitem":
        return operator.getitem
    if name in _ON_SIZES:
        return _ON_SIZES[name]
    space, _, rest = name.partition(".")
    op, _, overload = rest.partition(".")
    if f"{space}.{op}" in _REACH_OUT:
        raise TargetError(f"{name} is not called because a file says so")
    try:
        found: object = getattr(getattr(getattr(torch.ops, space), op), overload)
    except AttributeError as error:
        raise TargetError(
            f"this torch has no op {name}", remedy="import the library that defines it, or compile again"
        ) from error
    if not isinstance(found, OpOverload):
        raise TargetError(f"{name} is no op of torch's")
    return found


def decode(argument: object, values: Mapping[str, object]) -> object:
    """Return an argument from its JSON; `values` are the nodes by their names.

    Raises:
        TargetError: it is nothing that `encode` writes.
    """
    if isinstance(argument, list):
        return [decode(item, values) for item in argument]
    if not isinstance(argument, dict):
        return argument
    if len(argument) == 1:
        [(kind, value)] = argument.items()
        if kind == "node":
            return values[value]
        if kind == "float":
            return float(value)
        if kind == "complex":
            return complex(*value)
        if kind == "device":
            return torch.device(value)
        found = getattr(torch, value, None)
        if isinstance(found, _TORCH_TYPES):
            return found
    raise TargetError(f"an argument reads {str(argument)[:80]!r}, which is none")

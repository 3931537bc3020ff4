"""Encodes arguments of op calls as JSON, and decodes them: plain values, torch's types, and references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import fx

from torchport.errors import TargetError

_TORCH_TYPES = (torch.dtype, torch.layout, torch.memory_format)
_LONGEST_LIST = 1 << 16


@dataclass(frozen=True, slots=True)
class Reference:
    """A value of the graph, by its number."""

    number: int


def encode_argument(argument: object, numbers: Mapping[fx.Node, int]) -> object:
    """Return an argument's JSON; references and torch's own types become one-entry objects.

    Raises:
        TargetError: it has no JSON form.
    """
    if isinstance(argument, fx.Node):
        return {"value": numbers[argument]}
    if isinstance(argument, (list, tuple)):
        return [encode_argument(item, numbers) for item in argument]
    if isinstance(argument, torch.device):
        if argument.type != "cpu":
            raise TargetError(f"a call that creates a tensor on the device {argument} cannot be stored")
        return {"device": "cpu"}
    if isinstance(argument, torch.layout) and argument is not torch.strided:
        raise TargetError(f"a call that creates a tensor of the layout {argument} cannot be stored")
    if isinstance(argument, _TORCH_TYPES):
        return {type(argument).__name__: str(argument).removeprefix("torch.")}
    if isinstance(argument, float) and (argument != argument or argument in (float("inf"), float("-inf"))):
        return {"float": str(argument)}
    if isinstance(argument, complex):
        return {"complex": [str(argument.real), str(argument.imag)]}
    if argument is None or isinstance(argument, (bool, int, float, str)):
        return argument
    raise TargetError(f"an argument of type {type(argument).__name__} cannot be stored")


def decode_argument(data: object) -> object:
    """Return an argument from its JSON; values of the graph are `Reference`s.

    Raises:
        TargetError: it is malformed.
    """
    if not isinstance(data, list):
        return _decode_item(data)
    if len(data) > _LONGEST_LIST:
        raise TargetError(f"an argument is a list of {len(data)} items, which no op takes")
    return [_decode_item(item) for item in data]


def _decode_item(data: object) -> object:
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, Mapping) and len(data) == 1:
        [(kind, value)] = data.items()
        found = _decode_entry(kind, value)
        if found is not None:
            return found
    raise TargetError(f"an argument is malformed: {str(data)[:80]!r}")


def _decode_entry(kind: object, value: object) -> object:
    """Return the value that a one-entry object encodes; None if it is malformed."""
    if kind == "value" and type(value) is int:
        return Reference(value)
    if kind == "float" and value in ("nan", "inf", "-inf"):
        return float(str(value))
    if kind == "complex" and isinstance(value, list) and len(value) == 2:
        return complex(_number(value[0]), _number(value[1]))
    if kind == "device" and value == "cpu":
        return torch.device("cpu")
    if kind == "dtype":
        return permitted_dtype(value)
    if kind == "layout" and value == "strided":
        return torch.strided
    if kind == "memory_format" and isinstance(value, str):
        found = getattr(torch, value, None)
        return found if isinstance(found, torch.memory_format) else None
    return None


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError as error:
        raise TargetError(f"an argument is {str(value)[:80]!r}, which is not a number") from error


_QUANTIZED = ("quint", "qint", "bits")  # the dtype alone does not define the meaning of their bytes


def permitted_dtype(name: object) -> torch.dtype:
    """Return the dtype of that name, if files may use it.

    Raises:
        TargetError: there is no such dtype, or files may not use it.
    """
    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype) or str(name).startswith(_QUANTIZED):
        raise TargetError(f"{str(name)[:80]!r} is not a dtype that a file may use")
    return found

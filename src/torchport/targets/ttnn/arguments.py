"""Converts the arguments of a program's calls to JSON and back; no torch. `program_check.py` checks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torchport.errors import TargetError
from torchport.records import JSON


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that refers to a tensor of the program by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Name:
    """An argument that is a name of the library, such as `TILE_LAYOUT` or `bfloat16`."""

    path: str


@dataclass(frozen=True, slots=True)
class Make:
    """An argument that is an object of the library, such as `Conv2dConfig(...)`.

    Args:
        function: its constructor.
        args, kwargs: the constructor's arguments.
    """

    function: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]


Argument: TypeAlias = "Ref | Name | Make | bool | int | float | str | tuple[Argument, ...] | None"
Keywords: TypeAlias = "tuple[tuple[str, Argument], ...]"

DEVICE = Name("device")
COMPUTE = Name("compute")  # the compute kernel config, which sets precision: one for the whole program

_NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encode(argument: Argument) -> JSON:
    """Return an argument's JSON; values without a JSON equivalent become an object with one entry."""
    if isinstance(argument, Ref):
        return {"ref": argument.name}
    if isinstance(argument, Name):
        return {"name": argument.path}
    if isinstance(argument, Make):
        kwargs = {key: encode(item) for key, item in argument.kwargs}
        return {"make": [argument.function, [encode(item) for item in argument.args], kwargs]}
    if isinstance(argument, tuple):
        return [encode(item) for item in argument]
    if isinstance(argument, float) and not math.isfinite(argument):
        return {"float": str(argument)}
    return argument


def decode(data: object) -> Argument:
    """Return the argument that `encode` wrote; `check_call` checks that torchport uses it.

    Raises:
        TargetError: the JSON is not an argument.
    """
    if isinstance(data, list):
        return tuple(decode(item) for item in data)
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if not isinstance(data, Mapping) or len(data) != 1:
        raise malformed("an argument", data)
    [(kind, value)] = data.items()
    if kind == "make":
        return _decode_make(value)
    if isinstance(value, str):
        if kind == "ref":
            return Ref(value)
        if kind == "name":
            return Name(value)
        if kind == "float" and value in _NON_FINITE:
            return _NON_FINITE[value]
    raise malformed("an argument", data)


def decode_keywords(data: object) -> Keywords:
    """Return keyword arguments from their JSON.

    Raises:
        TargetError: the JSON is not keyword arguments.
    """
    if not isinstance(data, Mapping):
        raise malformed("keyword arguments", data)
    return tuple((key, decode(item)) for key, item in data.items())


def _decode_make(data: object) -> Make:
    if not isinstance(data, list) or len(data) != 3:
        raise malformed("an object", data)
    function, args, kwargs = data
    if not isinstance(function, str) or not isinstance(args, list):
        raise malformed("an object", data)
    return Make(function, tuple(map(decode, args)), decode_keywords(kwargs))


def malformed(what: str, data: object) -> TargetError:
    """Return the error for malformed JSON."""
    return TargetError(f"{what} of the program is malformed: {data!r:.100}", where="ttnn")


def mapped(argument: Argument, change: Callable[[Argument], Any]) -> Any:
    """Apply `change` to an argument, or to each item of a list, recursively."""
    if isinstance(argument, tuple):
        return tuple(mapped(item, change) for item in argument)
    return change(argument)


def refs_among(arguments: Iterable[Argument]) -> list[str]:
    """Return the names of the tensors among arguments, including those inside lists."""
    found: list[str] = []
    for argument in arguments:
        if isinstance(argument, Ref):
            found.append(argument.name)
        elif isinstance(argument, tuple):
            found += refs_among(argument)
    return found

"""The base class of records: frozen dataclasses that convert to JSON and back, validated both ways."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias, TypeVar, Union

from torchport.errors import RecordError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
RecordType = TypeVar("RecordType", bound="Record")

_MOST = 1 << 63  # no count comes near it, and much larger integers would overflow a float
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Record:
    """A value passed between stages.

    Subclasses are frozen dataclasses. `schema` names the record and the version of its JSON; a
    reader rejects an unknown schema rather than guessing.
    """

    __slots__ = ()
    schema: ClassVar[str] = ""

    def to_json(self) -> dict[str, JSON]:
        """Return the record as a JSON-ready dict, its schema first."""
        assert dataclasses.is_dataclass(self)
        head: dict[str, JSON] = {"schema": self.schema} if self.schema else {}
        return head | {field.name: _encode(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @classmethod
    def from_json(cls: type[RecordType], data: JSON) -> RecordType:
        """Build the record from the JSON that `to_json` returned.

        Raises:
            RecordError: the schema differs, or a field is missing or of the wrong type.
        """
        if not isinstance(data, Mapping):
            raise RecordError(f"expected a JSON object, got {type(data).__name__}", where=cls.__name__)
        if cls.schema and data.get("schema") != cls.schema:
            raise RecordError(
                f"the schema is {data.get('schema')!r}, not {cls.schema!r}",
                where=cls.__name__,
                remedy="read it with the version of torchport that wrote it, or write it again",
            )
        hints = _hints(cls)  # type: ignore[arg-type]  # a class is hashable
        values: dict[str, object] = {}
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # every subclass is a dataclass
            where = f"{cls.__name__}.{field.name}"
            if field.name in data:
                values[field.name] = _decode(data[field.name], hints[field.name], where)
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise RecordError("the field is missing", where=where)
        return cls(**values)


@functools.cache
def _hints(kind: type) -> dict[str, object]:
    return typing.get_type_hints(kind)


def _encode(value: object) -> JSON:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        # Strict JSON cannot express these numbers; Python's own encoder writes the same names, unquoted.
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise RecordError(f"a {type(value).__name__} has no JSON form", where="to_json")


def _decode(data: JSON, hint: object, where: str) -> object:
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _decode_union(data, arguments, where)
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_json(data)
    if origin is tuple:
        if not isinstance(data, (list, tuple)):
            raise RecordError(f"expected a list, got {type(data).__name__}", where=where)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_decode(item, arguments[0], f"{where}[{i}]") for i, item in enumerate(data))
        if len(arguments) != len(data):
            raise RecordError(f"expected {len(arguments)} items, got {len(data)}", where=where)
        return tuple(_decode(item, arguments[i], f"{where}[{i}]") for i, item in enumerate(data))
    if origin in (dict, Mapping):
        if not isinstance(data, Mapping):
            raise RecordError(f"expected an object, got {type(data).__name__}", where=where)
        return {key: _decode(item, arguments[1], f"{where}[{key!r}]") for key, item in data.items()}
    if origin is typing.Literal:
        if data not in arguments:
            raise RecordError(f"{data!r} is not one of {arguments}", where=where)
        return data
    return _decode_scalar(data, hint, where)


def _decode_union(data: JSON, choices: tuple[object, ...], where: str) -> object:
    if data is None and type(None) in choices:
        return None
    errors = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _decode(data, choice, where)
        except RecordError as error:
            errors.append(error)
    raise errors[0]


def _decode_scalar(data: JSON, hint: object, where: str) -> object:
    if isinstance(data, int) and not -_MOST <= data < _MOST:
        raise RecordError("the number has more than 64 bits", where=where)
    if hint is float:
        if isinstance(data, str) and data in _NON_FINITE:
            return _NON_FINITE[data]
        if isinstance(data, (int, float)) and not isinstance(data, bool):
            return float(data)
    elif hint is int:
        if isinstance(data, int) and not isinstance(data, bool):
            return data
    elif (hint in (bool, str) and isinstance(data, hint)) or hint is object:
        return data
    name = getattr(hint, "__name__", str(hint))
    raise RecordError(f"expected {name}, got {data!r}", where=where)

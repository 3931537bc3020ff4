"""Reads the properties of an artefact, which may be untrusted: each value is checked first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from torchport.errors import TargetError
from torchport.records import TensorSpec


def refuse_property(target: str, key: str, value: object) -> TargetError:
    """Return an error for a property with a value that no build writes."""
    return TargetError(
        f"the island's property {key!r} cannot be {value!r:.100}",
        where=target,
        remedy="compile the model again",
    )


def check_format(properties: Mapping[str, object], wanted: int, target: str) -> None:
    """Reject an island of a format other than this version of torchport writes.

    Raises:
        TargetError: names both formats.
    """
    if properties.get("format") != wanted:
        raise TargetError(
            f"the island has format {properties.get('format')!r:.100}, not {wanted}",
            where=target,
            remedy="compile the model again with this version of torchport",
        )


def read_number(properties: Mapping[str, object], key: str, most: int, target: str) -> int:
    """Return an integer property between 0 and `most`.

    Raises:
        TargetError: the property is missing or invalid.
    """
    value = properties.get(key)
    if not is_whole(value) or not 0 <= value <= most:
        raise refuse_property(target, key, value)
    return value


def read_places(properties: Mapping[str, object], key: str, count: int, target: str) -> list[int]:
    """Return a property that is a list of indices below `count`.

    Raises:
        TargetError: the property is missing or invalid.
    """
    value = properties.get(key)
    if not isinstance(value, list) or not all(is_whole(item) and 0 <= item < count for item in value):
        raise refuse_property(target, key, value)
    return value


def read_by_place(
    properties: Mapping[str, object], key: str, count: int, target: str
) -> list[tuple[int, object]]:
    """Return the entries of a property that is an object whose keys are indices below `count`.

    Raises:
        TargetError: the property is missing or invalid.
    """
    value = properties.get(key)
    if not isinstance(value, Mapping):
        raise refuse_property(target, key, value)
    found = []
    for index, item in value.items():
        if not isinstance(index, str) or index not in map(str, range(count)):
            raise refuse_property(target, key, value)
        found.append((int(index), item))
    return found


def read_input_ranges(
    properties: Mapping[str, object], inputs: Sequence[TensorSpec], target: str
) -> list[tuple[int, int, int]]:
    """Return the bounds that integer inputs must lie within: index, least, most.

    Raises:
        TargetError: the property is missing, names an input that is not an integer, or has invalid bounds.
    """
    key = "input_ranges"
    found = []
    for index, bounds in read_by_place(properties, key, len(inputs), target):
        if not isinstance(bounds, Sequence) or len(bounds) != 2 or not all(map(is_whole, bounds)):
            raise refuse_property(target, key, bounds)
        if "int" not in inputs[index].dtype:
            raise refuse_property(target, key, index)
        found.append((index, bounds[0], bounds[1]))
    return found


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a JSON value is an integer, which true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)

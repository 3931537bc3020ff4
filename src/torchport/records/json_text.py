"""Reads JSON that may be anybody's: bounded in depth, and without halves of pairs, which no file can hold."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from torchport.errors import RecordError
from torchport.records.record import JSON

DEEPEST = 64
"""How deep a record's lists and objects may stand in one another; those of torchport need fewer than ten."""

_ESCAPED = re.compile(r"\\.", re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_HALF = re.compile("[\ud800-\udfff]")
_REMEDY = "delete it, and write it again"


def read_json_text(text: str | bytes, *, where: str) -> JSON:
    """Return what a JSON text says.

    Args:
        text: the text; bytes are UTF-8.
        where: what is complained about.

    Raises:
        RecordError: it is not JSON, or stands too deep in itself.
    """
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        if _depth(decoded) > DEEPEST:
            raise RecordError(
                f"its lists and objects stand more than {DEEPEST} deep in one another",
                where=where,
                remedy=_REMEDY,
            )
        data: JSON = json.loads(decoded)
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise RecordError(f"is not whole JSON: {error}", where=where, remedy=_REMEDY) from error
    return _without_halves(data) if "\\ud" in decoded.lower() else data


def _depth(text: str) -> int:
    """Return how deep brackets stand in one another, or how many open if that is few."""
    deepest = text.count("[") + text.count("{")
    if deepest <= DEEPEST:
        return deepest
    deepest = depth = 0
    for part in _ESCAPED.sub("", text).split('"')[::2]:  # what is in no string
        for bracket in _BRACKET.findall(part):
            depth += 1 if bracket in "[{" else -1
            deepest = max(deepest, depth)
    return deepest


def _without_halves(data: JSON) -> JSON:
    if isinstance(data, str):
        return _HALF.sub("\ufffd", data)
    if isinstance(data, Mapping):
        return {_HALF.sub("\ufffd", key): _without_halves(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_without_halves(item) for item in data]
    return data

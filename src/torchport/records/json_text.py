"""Parses untrusted JSON: returns a value that is not nested too deeply, or raises one error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from torchport.errors import RecordError
from torchport.records.record import JSON

MOST_NESTED = 200
"""How many lists and objects may be nested in one another; what torchport writes has some twenty levels."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_REMEDY = "delete it, and write it again"


def parse_json(text: str | bytes, where: str) -> JSON:
    """Return the value that a text of JSON stands for; lone surrogates, which no file can hold, are replaced.

    Args:
        text: the text; bytes are UTF-8.
        where: what it is, for messages.

    Raises:
        RecordError: it is not JSON, or is nested too deeply.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        data: JSON = json.loads(decoded)
    except RecursionError as error:
        raise _too_deep(where) from error
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError both
        raise RecordError(f"is not valid JSON: {error}", where=where, remedy=_REMEDY) from error
    _check_depth(data, where)
    return _without_surrogates(data) if "\\ud" in decoded.lower() else data


def parse_object(text: str | bytes, where: str) -> Mapping[str, JSON]:
    """Return a JSON object.

    Raises:
        RecordError: it is something else.
    """
    data = parse_json(text, where)
    if not isinstance(data, Mapping):
        raise RecordError(f"expected a JSON object, got {type(data).__name__}", where=where)
    return data


def _check_depth(data: JSON, where: str) -> None:
    level: list[JSON] = [data]
    for _ in range(MOST_NESTED):
        inner: list[JSON] = []
        for value in level:
            if isinstance(value, dict):
                inner += [item for item in value.values() if isinstance(item, (dict, list))]
            elif isinstance(value, list):
                inner += [item for item in value if isinstance(item, (dict, list))]
        if not inner:
            return
        level = inner
    raise _too_deep(where)


def _too_deep(where: str) -> RecordError:
    return RecordError(f"is JSON of more than {MOST_NESTED} levels", where=where, remedy=_REMEDY)


def _without_surrogates(data: JSON) -> JSON:
    if isinstance(data, str):
        return _LONE_SURROGATE.sub("\ufffd", data)
    if isinstance(data, Mapping):
        return {_LONE_SURROGATE.sub("\ufffd", key): _without_surrogates(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_without_surrogates(item) for item in data]
    return data

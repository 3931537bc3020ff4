"""Parses untrusted JSON with a limit on nesting; every failure is a `RecordError`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from torchport.errors import RecordError
from torchport.records.record import JSON

MOST_NESTED = 200
"""How deeply lists and objects may be nested; what torchport writes has some twenty levels."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_REMEDY = "delete it, and write it again"


def parse_json(text: str | bytes, where: str) -> JSON:
    """Return the value of a JSON text; lone surrogates, which UTF-8 cannot encode, are replaced.

    Args:
        text: the text; bytes are decoded as UTF-8.
        where: the text's origin, for messages.

    Raises:
        RecordError: the text is not JSON, or is nested too deeply.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        data: JSON = json.loads(decoded)
    except RecursionError as error:
        raise _too_deep(where) from error
    except ValueError as error:  # both JSONDecodeError and UnicodeDecodeError
        raise RecordError(f"is not valid JSON: {error}", where=where, remedy=_REMEDY) from error
    _check_depth(data, where)
    return _without_surrogates(data) if "\\ud" in decoded.lower() else data


def parse_object(text: str | bytes, where: str) -> Mapping[str, JSON]:
    """Return the value of a JSON text that must be an object.

    Raises:
        RecordError: the text is not a JSON object.
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
    return RecordError(f"the JSON is nested more than {MOST_NESTED} levels deep", where=where, remedy=_REMEDY)


def _without_surrogates(data: JSON) -> JSON:
    if isinstance(data, str):
        return _LONE_SURROGATE.sub("\ufffd", data)
    if isinstance(data, Mapping):
        return {_LONE_SURROGATE.sub("\ufffd", key): _without_surrogates(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_without_surrogates(item) for item in data]
    return data

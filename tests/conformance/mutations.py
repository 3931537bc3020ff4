"""Changes JSON and XML as a stranger might who knows their structure: what comes out is JSON or XML."""

from __future__ import annotations

import copy
import random
import re

NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    31,
    32,
    255,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**62,
    2**63,
    10**30,
    0.5,
    -0.0,
    1e308,
)
WORDS = (
    "", "x", "os.system", "__class__", "ttnn", "device", "float32", "float64", "complex64", "tile", "../..",
    "\n", "\0", "CPU", "0", "-1", "99999999999999999999", "True", "import os", "full", "relu", "matmul",
    "embedding",
)  # fmt: skip
VALUES: tuple[object, ...] = (*NUMBERS, *WORDS, None, True, False, [], {}, [[]], {"ref": "x"}, {"name": "os"})


def mutate_json(data: object, chance: random.Random) -> object:
    """Return JSON with one to three places changed."""
    data = copy.deepcopy(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        holders = _holders(data)
        if not holders:
            return data
        holder, key = chance.choice(holders)
        _change(holder, key, holders, chance)
    return data


def _holders(data: object) -> list[tuple[object, object]]:
    """Return every place in JSON: what holds it, and where."""
    found: list[tuple[object, object]] = []
    waiting = [data]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        for key in keys:
            found.append((item, key))
            waiting.append(item[key])
    return found


def _change(holder, key, holders, chance: random.Random) -> None:
    kind = chance.randrange(7)
    value = holder[key]
    if kind == 0:
        del holder[key]
    elif kind == 1:
        other, place = chance.choice(holders)
        if place in other if isinstance(other, dict) else place < len(other):
            holder[key] = copy.deepcopy(other[place])
    elif kind == 2 and isinstance(holder, list):
        holder.insert(chance.randrange(len(holder) + 1), copy.deepcopy(value))
    elif kind == 3 and isinstance(holder, list):
        chance.shuffle(holder)
    elif isinstance(value, (int, float)) and kind < 6:
        holder[key] = chance.choice((*NUMBERS, value + 1, value - 1, -value))
    else:
        holder[key] = copy.deepcopy(chance.choice(VALUES))


_ATTRIBUTE = re.compile(r'(\w[\w-]*)="([^"]*)"')
_ELEMENT = re.compile(r"\t*<(layer|edge)\b.*?(?:/>|</layer>)\n", re.DOTALL)
_SIZE = re.compile(r"<dim>(-?\d+)</dim>")


def mutate_xml(text: str, types: list[str], chance: random.Random) -> str:
    """Return an XML with one to three attributes, sizes or elements changed."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        kind = chance.randrange(6)
        if kind < 3:
            text = _change_attribute(text, types, chance)
        elif kind == 3:
            text = _replaced(text, _SIZE, lambda _: f"<dim>{chance.choice(NUMBERS)}</dim>", chance)
        elif kind == 4:
            text = _replaced(text, _ELEMENT, lambda match: chance.choice(("", match.group() * 2)), chance)
        else:
            elements = [match.group() for match in _ELEMENT.finditer(text)]
            text = _replaced(text, _ELEMENT, lambda _: chance.choice(elements), chance)
    return text


def _change_attribute(text: str, types: list[str], chance: random.Random) -> str:
    others = _ATTRIBUTE.findall(text)

    def change(match: re.Match[str]) -> str:
        name, value = match.groups()
        same = [other for key, other in others if key == name]
        numbers = [str(chance.choice(NUMBERS)) for _ in value.split(",")]
        choices = [chance.choice(same), ", ".join(numbers), chance.choice(others)[1], chance.choice(WORDS)]
        chosen = chance.choice(types) if name == "type" else chance.choice(choices)
        return f'{name}="{re.sub(r"[<>&]|[^ -~]", "", chosen)}"'

    return _replaced(text, _ATTRIBUTE, change, chance)


def _replaced(text: str, pattern: re.Pattern[str], change, chance: random.Random) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text
    match = chance.choice(found)
    return text[: match.start()] + change(match) + text[match.end() :]

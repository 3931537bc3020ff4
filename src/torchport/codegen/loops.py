"""Turns statements that repeat for consecutive blocks into a loop."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_INDEX = re.compile(r"\bself\.(\w+)\[(\d+)\]")
_LONGEST = 6


@dataclass(frozen=True, slots=True)
class _Unit:
    """A statement as text: its pattern with indices removed, and the lists and indices that it uses."""

    pattern: str
    lists: tuple[str, ...]
    indices: tuple[int, ...]


def roll_loops(
    statements: Sequence[str], lengths: Mapping[str, int], names: set[str]
) -> list[tuple[str, list[str]]]:
    """Group repeated statements into loops.

    Args:
        statements: the statements, each on one line.
        lengths: the lengths of the module lists.
        names: names that a loop variable must not have.

    Returns:
        Pairs of a loop's head and its body; the head is empty for statements outside a loop.
    """
    units = [_unit(statement) for statement in statements]
    found: list[tuple[str, list[str]]] = []
    position = 0
    while position < len(units):
        period, times = _repetition(units, position)
        if times < 2:
            found.append(("", [statements[position]]))
            position += 1
            continue
        start = units[position].indices[0]
        name = units[position].lists[0]
        whole = start == 0 and times == lengths.get(name, -1)
        variable = _variable(name, names)
        head = f"for {variable} in self.{name}" + ("" if whole else f"[{start or ''}:{start + times}]")
        if whole or start + times == lengths.get(name, -1):
            head = f"for {variable} in self.{name}" + (f"[{start}:]" if start else "")
        body = statements[position : position + period]
        found.append((f"{head}:", [_INDEX.sub(variable, statement) for statement in body]))
        position += period * times
    return found


def _unit(statement: str) -> _Unit:
    matches = _INDEX.findall(statement)
    return _Unit(
        _INDEX.sub(r"self.\1[]", statement),
        tuple(name for name, _ in matches),
        tuple(int(index) for _, index in matches),
    )


def _repetition(units: list[_Unit], start: int) -> tuple[int, int]:
    """Return the length of the block that repeats from a statement on, and how many times it occurs."""
    for period in range(1, _LONGEST + 1):
        block = units[start : start + period]
        lists = {name for unit in block for name in unit.lists}
        first = {index for unit in block for index in unit.indices}
        if len(block) < period or len(lists) != 1 or len(first) != 1 or not block[0].lists:
            continue
        base = first.pop()
        times = 1
        while _continues(units, start + period * times, block, base + times):
            times += 1
        if times > 1:
            return period, times
    return 1, 1


def _continues(units: list[_Unit], position: int, block: list[_Unit], index: int) -> bool:
    following = units[position : position + len(block)]
    return len(following) == len(block) and all(
        unit.pattern == model.pattern and set(unit.indices) <= {index}
        for unit, model in zip(following, block, strict=True)
    )


def _variable(name: str, names: set[str]) -> str:
    single = name[:-1] if name.endswith("s") and len(name) > 2 else name
    for variable in (single, "layer", "block", f"{single}_part"):
        if variable not in names:
            return variable
    return f"{single}_"

"""Writes CSV that a spreadsheet shows and never computes.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, also when it was the name of a
stranger's model. Such a text gets an apostrophe before it, as does one that has one already, so that
who reads the file knows what was meant: a leading apostrophe is not part of the text. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

_FORMULA = re.compile(r"[\s\x00-\x1f]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n\x00]|'")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_QUOTED = re.compile(r'[",;\t\r\n]|^ | $')  # in some countries a semicolon divides cells
_MARK = "'"


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV; None is empty."""
    return "".join(",".join(map(_cell, row)) + "\n" for row in rows)


def read_csv_text(text: str) -> list[list[str]]:
    """Return the rows of what `csv_text` wrote, each cell as the text that was meant.

    Example:
        >>> read_csv_text(csv_text([["=1+1", -1]]))
        [['=1+1', '-1']]
    """
    rows = csv.reader(io.StringIO(text, newline=""))
    return [[cell.removeprefix(_MARK) for cell in row] for row in rows]


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = repr(value) if isinstance(value, float) else str(value).replace("\0", "\ufffd")
    if isinstance(value, str) and _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        text = _MARK + text
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text

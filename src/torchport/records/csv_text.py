"""Writes and reads CSV whose cells a spreadsheet never evaluates as formulas.

A spreadsheet treats a cell that begins with `=`, `+`, `-` or `@` as a formula, even if it is the name of an
untrusted model. Such a text gets a leading apostrophe, as does one that already begins with one, so that
decoding is unambiguous: the first leading apostrophe is never part of the text. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

_FORMULA = re.compile(r"[\s\x00-\x1f]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n\x00]|'")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_QUOTED = re.compile(r'[",;\t\r\n]|^ | $')  # in some locales a semicolon separates cells
_MARK = "'"


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV; None becomes an empty cell."""
    return "".join(",".join(map(_cell, row)) + "\n" for row in rows)


def read_csv_text(text: str) -> list[list[str]]:
    """Return the rows of a text that `csv_text` wrote, each cell as its original text.

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

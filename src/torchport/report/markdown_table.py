"""Formats Markdown tables so that their columns align in a terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# A bar would end the cell; a tag, such as `<lambda>` in an error, would vanish when rendered; `](` would turn
# a name into a link. A backslash before one of these would cancel its escape.
_SIGNS = re.compile(r"\\(?=\\*[|<])|[|<]|(?<=\])\(")
_LONGEST = 2000  # every cell of a column is padded to the widest


def align(header: list[str], rows: list[list[str]], right: Sequence[bool]) -> list[str]:
    """Return the lines of a table whose columns are padded.

    Args:
        header: the titles.
        rows: the cells, escaped.
        right: which columns are right-aligned.
    """
    widths = [max(3, *(_width(line[i]) for line in [header, *rows])) for i in range(len(header))]
    rule = ["-" * (width - 1) + ":" if r else "-" * width for width, r in zip(widths, right, strict=True)]
    return [_line(line, widths, right) for line in [header, rule, *rows]]


def _line(cells: list[str], widths: list[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, to_the_right in zip(cells, widths, right, strict=True):
        space = " " * (width - _width(cell))
        padded.append(space + cell if to_the_right else cell + space)
    return f"| {' | '.join(padded)} |"


def _width(text: str) -> int:
    """Return the width of a text in a terminal: an emoji or a Chinese character takes two columns."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def escape(text: str) -> str:
    """Return a text escaped for a cell, on one line and shortened if it is too long."""
    words = " ".join(text.split())
    if len(words) > _LONGEST:
        words = f"{words[: _LONGEST // 2]} … {words[-_LONGEST // 2 :]}"
    return _SIGNS.sub(r"\\\g<0>", words)

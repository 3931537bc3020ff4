"""Renders the results table as Markdown that reads well as plain text too."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from torchport.report.columns import COLUMNS, complaint
from torchport.report.reading import Report


def render_markdown(report: Report) -> str:
    """Return the results table, and below it why each row that is not ok is not.

    Args:
        report: what `read_report` returned.

    Returns:
        Markdown, its columns padded so that they align in a terminal.

    Example:
        >>> print(render_markdown(read_report(Path("out/demo"))))
    """
    header = [column.title for column in COLUMNS]
    cells = [[_escape(column.text(row)) for column in COLUMNS] for row in report.benches]
    lines = _align(header, cells, [column.numeric for column in COLUMNS])
    complaints = [
        f"- ❌ {_escape(row.model)} on {_escape(row.target)}: {_escape(complaint(row))}"
        for row in report.benches
        if row.status != "ok"
    ]
    return "\n".join(lines + (["", *complaints] if complaints else []))


def _align(header: list[str], rows: list[list[str]], right: Sequence[bool]) -> list[str]:
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
    """Return how many columns a text takes in a terminal: an emoji or a Chinese sign takes two."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def _escape(text: str) -> str:
    # A bar would end the cell; a tag, such as `<lambda>` in an error, would vanish when rendered.
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")

"""Renders a survey as CSV files: how often each op occurs, its sizes, and the values of its arguments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby

from torchport.records import csv_text
from torchport.report.survey.op_files import op_file_names
from torchport.report.survey.records import (
    DIRECTIONS,
    SIDES,
    ArgumentCount,
    Direction,
    Side,
    SizeCount,
    Survey,
)

UNKNOWN = "unknown"
"""The text for a number of bytes that depends on a symbolic size."""


def size_folder(direction: Direction, side: Side) -> str:
    """Return the folder of the size distributions of a direction's inputs or outputs."""
    return f"{direction}_total_{side}_size_dist"


def argument_folder(direction: Direction) -> str:
    """Return the folder of a direction's argument values."""
    return f"{direction}_total_arguments"


def count_file(direction: Direction) -> str:
    """Return the name of the file with a direction's op counts."""
    return f"{direction}_node_count.csv"


def plain_name(name: str) -> str | None:
    """Return a forward file's path without the direction; None for a backward file."""
    return name.removeprefix("fw_") if name.startswith("fw_") else None


_BY_DIRECTION = (
    *(size_folder(direction, side) for direction in DIRECTIONS for side in SIDES),
    *(argument_folder(direction) for direction in DIRECTIONS),
)
FOLDERS = (*_BY_DIRECTION, *filter(None, map(plain_name, _BY_DIRECTION)))
"""The folders that a report writes to; any other CSV file or plot in them is from an earlier report."""


def render_csv_files(survey: Survey) -> dict[str, str]:
    """Return the CSV files of a survey, by their path in its directory.

    A direction that was not recorded has no files.

    Args:
        survey: the survey that `read_survey` returned.
    """
    names = op_file_names(op.op for op in survey.ops)
    texts = {}
    for direction in DIRECTIONS:
        if ops := survey.ops_of(direction):
            rows = [("op", "count"), *((op.op, op.count) for op in ops)]
            texts[count_file(direction)] = csv_text(rows)
    for (direction, side, op), sizes in group_sizes(survey).items():
        texts[f"{size_folder(direction, side)}/{names[op]}.csv"] = csv_text(
            [
                ("bytes", "count"),
                *((UNKNOWN if size.bytes is None else size.bytes, size.count) for size in sizes),
            ]
        )
    for (direction, op), group in groupby(survey.arguments, key=lambda row: (row.direction, row.op)):
        texts[f"{argument_folder(direction)}/{names[op]}.csv"] = csv_text(_argument_rows(group))
    return texts


def group_sizes(survey: Survey) -> dict[tuple[Direction, Side, str], list[SizeCount]]:
    """Return the distributions of a survey, by direction, side and op."""
    groups: dict[tuple[Direction, Side, str], list[SizeCount]] = defaultdict(list)
    for size in survey.sizes:
        groups[size.direction, size.side, size.op].append(size)
    return groups


def _argument_rows(arguments: Iterable[ArgumentCount]) -> list[Sequence[object]]:
    """Return two rows for each argument: its values, and how often each occurs."""
    rows: list[Sequence[object]] = []
    for name, group in groupby(arguments, key=lambda row: row.name):
        values = list(group)
        rows.append([f"{name}'s appeared value", *(row.value for row in values)])
        rows.append([f"{name}'s appeared value's count", *(row.count for row in values)])
    return rows

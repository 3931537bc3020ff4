"""Finds a survey in a directory: its rows, and the raw files that they refer to."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from torchport.errors import RecordError, ReportError
from torchport.records import SurveyRow, list_files, read_record
from torchport.report.problem import Problem

RAW, ROWS, PROFILE = "raw", "rows", "profile"
"""The folders of a survey, with one Parquet file, one JSON file and one trace for each model."""

RAW_ENDING, ROW_ENDING = ".parquet", ".json"
_MAGIC = b"PAR1"  # a Parquet file begins and ends with these bytes
_STAT = json.dumps("stat")  # settings are JSON
_AGAIN = "delete it, and survey its model again"


@dataclass(frozen=True, slots=True)
class SurveyFiles:
    """The files of a survey.

    Args:
        directory: the survey's directory.
        rows: the outcome of each model; empty if the survey has no rows.
        raw: the raw files to count, sorted by name.
        problems: the files found so far that cannot be counted.
    """

    directory: Path
    rows: tuple[SurveyRow, ...]
    raw: tuple[Path, ...]
    problems: tuple[Problem, ...]


def holds_survey(directory: Path) -> bool:
    """Return whether a directory holds a survey of ops: a raw file, or a row that is not of a benchmark."""
    if list_files(directory / RAW, RAW_ENDING):
        return True
    rows = list_files(directory / ROWS, ROW_ENDING)
    return bool(rows.refused) or any(_is_of_ops(path) for path in rows.files)


def find_survey(directory: Path) -> SurveyFiles:
    """Return the files of a survey.

    If there are rows, they decide what counts: a raw file that no row refers to, such as one that a killed
    survey left, is a problem rather than a second count of the same model. Without rows, every raw file
    counts.

    Raises:
        ReportError: the directory does not exist, or holds no survey.
    """
    if not directory.is_dir():
        raise ReportError("there is no such directory", where=str(directory), remedy=_REMEDY)
    if not holds_survey(directory):
        raise ReportError("holds no survey", where=str(directory), remedy=_REMEDY)
    problems: list[Problem] = []
    rows = _read_rows(directory / ROWS, problems)
    raw = list_files(directory / RAW, RAW_ENDING)
    problems += map(Problem.of, raw.refused)
    there = {path.name: path for path in raw.files}
    if rows:
        there = _named_by_rows(directory / RAW, there, rows, problems)
    whole = []
    for path in there.values():
        if reason := _cut(path):
            problems.append(Problem(str(path), f"{reason}: {_AGAIN}"))
        else:
            whole.append(path)
    return SurveyFiles(directory, tuple(rows), tuple(whole), tuple(problems))


_REMEDY = "make one with `torchport survey MODEL… -o DIR`"


def _read_rows(folder: Path, problems: list[Problem]) -> list[SurveyRow]:
    rows = []
    found = list_files(folder, ROW_ENDING)
    problems += map(Problem.of, found.refused)
    for path in found.files:
        try:
            row = read_record(path, SurveyRow)
        except RecordError as error:
            problems.append(Problem.of(error))
            continue
        if _records_ops(row):
            rows.append(row)
    return sorted(rows, key=lambda row: (row.model, row.raw))


def _is_of_ops(path: Path) -> bool:
    try:
        return _records_ops(read_record(path, SurveyRow))
    except RecordError:
        return True  # reported as a problem when the rows are read


def _records_ops(row: SurveyRow) -> bool:
    """Return whether a row is about recording ops; results of a target are shown from `bench/`."""
    return row.settings.get("backend", _STAT) == _STAT


def _named_by_rows(
    folder: Path, there: dict[str, Path], rows: list[SurveyRow], problems: list[Problem]
) -> dict[str, Path]:
    named = {row.raw for row in rows if row.status == "ok" and row.raw}
    problems += [
        Problem(str(folder / name), "its row refers to it, but it is missing: survey its model again")
        for name in sorted(named - set(there))
    ]
    problems += [
        Problem(
            str(path),
            "no row of an ok model refers to it, so it is not counted: survey its model again, or delete it",
        )
        for name, path in there.items()
        if name not in named
    ]
    return {name: path for name, path in there.items() if name in named}


def _cut(path: Path) -> str:
    """Return why a file's first and last bytes are not those of a whole Parquet file; empty if they are."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_MAGIC)))
            tail = file.read()
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if head != _MAGIC:
        return "is not a Parquet file"
    return "" if tail == _MAGIC and size > 2 * len(_MAGIC) else "is cut off"

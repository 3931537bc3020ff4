"""Reads the records of a directory; a bad file costs itself, never the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torchport.errors import RecordError, ReportError
from torchport.records import JSON, BenchRecord, Coverage, Record, decode_record, read_json


@dataclass(frozen=True, slots=True)
class Problem(Record):
    """A file that cannot be shown.

    Args:
        path: the file.
        detail: what is wrong with it, and what to do, in a sentence.
    """

    path: str
    detail: str


@dataclass(frozen=True, slots=True)
class Report(Record):
    """What a directory's records say.

    Args:
        benches: the rows of the results table, by model and target.
        coverages: what each target took of each model, and why the rest stays.
        problems: the files that cannot be shown.
    """

    schema: ClassVar[str] = "torchport.report/1"

    benches: tuple[BenchRecord, ...]
    coverages: tuple[Coverage, ...]
    problems: tuple[Problem, ...]

    def coverage_of(self, bench: BenchRecord) -> Coverage | None:
        """Return the coverage of a row's model on its target, if there is a record of it."""
        for coverage in self.coverages:
            if (coverage.model, coverage.target) == (bench.model, bench.target):
                return coverage
        return None


def read_report(directory: Path) -> Report:
    """Read every record under a directory.

    JSON files that are not torchport's are passed over; those that are, but cannot be read, become
    the report's problems.

    Args:
        directory: what `torchport bench -o` wrote to.

    Returns:
        The report, its rows sorted by model and target.

    Raises:
        ReportError: there is no such directory, or it holds nothing to show.

    Example:
        >>> print(render_markdown(read_report(Path("out/demo"))))
    """
    if not directory.is_dir():
        raise ReportError("there is no such directory", where=str(directory), remedy=_REMEDY)
    benches: list[BenchRecord] = []
    coverages: list[Coverage] = []
    problems: list[Problem] = []
    for path in sorted(directory.rglob("*.json")):
        try:
            record = _read(path)
        except RecordError as error:
            detail = f"{error.what}: {error.remedy}" if error.remedy else error.what
            problems.append(Problem(error.where, detail))
            continue
        if isinstance(record, BenchRecord):
            benches.append(record)
        elif isinstance(record, Coverage):
            coverages.append(record)
    if not benches and not problems:
        raise ReportError("holds no bench records", where=str(directory), remedy=_REMEDY)
    return Report(
        tuple(sorted(benches, key=lambda row: (row.model, row.target))),
        tuple(sorted(coverages, key=lambda row: (row.model, row.target))),
        tuple(problems),
    )


_REMEDY = "write some with `torchport bench MODEL --target TARGET -o DIR`"
_KINDS: tuple[type[BenchRecord] | type[Coverage], ...] = (BenchRecord, Coverage)


def _read(path: Path) -> BenchRecord | Coverage | None:
    data = read_json(path)
    kind = _kind_of(data)
    return None if kind is None else decode_record(data, kind, path)


def _kind_of(data: JSON) -> type[BenchRecord] | type[Coverage] | None:
    """Return the record that a file says it holds, whatever the version of its schema."""
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if not isinstance(schema, str):
        return None
    for kind in _KINDS:
        if schema.split("/")[0] == kind.schema.split("/")[0]:
            return kind
    return None

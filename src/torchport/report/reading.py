"""Reads the records of a directory; a bad file is reported and does not affect the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

from torchport.errors import RecordError, ReportError
from torchport.records import (
    JSON,
    Accuracy,
    Analysis,
    BenchRecord,
    Cost,
    Coverage,
    ModelGraph,
    ModuleTable,
    OpTable,
    Profile,
    Record,
    decode_record,
    list_all_files,
    read_json,
)
from torchport.records.quantization import QuantizationReport
from torchport.report.problem import Problem
from torchport.report.survey.database import DEFAULT_LIMITS, Limits
from torchport.report.survey.files import PROFILE, RAW, ROWS, holds_survey
from torchport.report.survey.reading import read_survey
from torchport.report.survey.records import Survey

_Rows = TypeVar("_Rows", BenchRecord, Coverage, Accuracy, ModelGraph, QuantizationReport, Profile)


@dataclass(frozen=True, slots=True)
class Report(Record):
    """The records of a directory.

    Args:
        benches: the rows of the results table, sorted by model and target.
        coverages: which ops each target took of each model, and why the others stay.
        problems: the files that cannot be shown.
        survey: the ops that the models of a survey use, if the directory holds one.
        accuracies: the accuracy of each model, output by output.
        analyses: the unique modules, unique ops and costs of models.
        graphs: the graph that each target received, op by op.
        quantizations: the measurements of quantized models, layer by layer.
        profiles: how long each op took, for the graphs of the same model and target.
    """

    schema: ClassVar[str] = "torchport.report/1"

    benches: tuple[BenchRecord, ...] = ()
    coverages: tuple[Coverage, ...] = ()
    problems: tuple[Problem, ...] = ()
    survey: Survey | None = None
    accuracies: tuple[Accuracy, ...] = ()
    analyses: tuple[Analysis, ...] = ()
    graphs: tuple[ModelGraph, ...] = ()
    quantizations: tuple[QuantizationReport, ...] = ()
    profiles: tuple[Profile, ...] = ()

    def to_json(self) -> dict[str, JSON]:
        """Return the report as a JSON-ready dict.

        `survey` and `quantizations` are included only if present. Analyses, graphs and profiles have files of
        their own and are omitted.
        """
        data = Record.to_json(replace(self, analyses=(), graphs=(), profiles=()))
        if self.survey is None:
            del data["survey"]
        if not self.quantizations:
            del data["quantizations"]
        del data["analyses"], data["graphs"], data["profiles"]
        return data

    @property
    def every_problem(self) -> tuple[Problem, ...]:
        """The files that cannot be shown, including those of the survey."""
        return self.problems + (self.survey.problems if self.survey else ())


def read_report(directory: Path, limits: Limits = DEFAULT_LIMITS) -> Report:
    """Read every record under a directory.

    JSON files that are not torchport's are skipped; torchport's own that cannot be read become the
    report's problems.

    Args:
        directory: the directory that `torchport bench -o`, `torchport survey -o` or `torchport analyze --dir`
            wrote to. It may be untrusted: links in it are not followed.
        limits: the limits of memory, threads and time for reading a survey.

    Returns:
        The report, with rows sorted by model and target.

    Raises:
        ReportError: there is no such directory, or it holds nothing to show.

    Example:
        >>> print(render_markdown(read_report(Path("out/demo"))))
    """
    if not directory.is_dir():
        raise ReportError("there is no such directory", where=str(directory), remedy=_REMEDY)
    problems: list[Problem] = []
    records: dict[Path, Record] = {}
    found = list_all_files(directory, ".json")
    own = _survey_folders(directory)
    problems += [
        Problem.of(error) for error in found.refused if own.isdisjoint(_with_parents(Path(error.where)))
    ]
    for path in found.files:
        if not own.isdisjoint(_with_parents(path)):
            continue
        try:
            record = _read(path)
        except RecordError as error:
            problems.append(Problem.of(error))
            continue
        if record is not None:
            records[path] = record
    survey = _read_survey(directory, limits, problems, alone=not records) if own else None
    if not records and not problems and survey is None:
        raise ReportError("holds no bench records and no survey", where=str(directory), remedy=_REMEDY)
    analyses = _join_analyses(records)
    return Report(
        _sorted(BenchRecord, records),
        _sorted(Coverage, records),
        tuple(problems),
        survey,
        _sorted(Accuracy, records),
        tuple(sorted(analyses, key=lambda analysis: analysis.model)),
        _sorted(ModelGraph, records),
        _sorted(QuantizationReport, records),
        _sorted(Profile, records),
    )


_REMEDY = (
    "write some with `torchport bench MODEL --target TARGET -o DIR`, or make one with "
    "`torchport survey MODEL… -o DIR`"
)
_KINDS: tuple[type[Record], ...] = (
    BenchRecord, Coverage, Accuracy, ModelGraph, ModuleTable, OpTable, Cost, QuantizationReport,
    Profile,
)  # fmt: skip


def _sorted(kind: type[_Rows], records: Mapping[Path, Record]) -> tuple[_Rows, ...]:
    rows = [record for record in records.values() if isinstance(record, kind)]
    return tuple(sorted(rows, key=lambda row: (row.model, row.target)))


def _join_analyses(records: Mapping[Path, Record]) -> list[Analysis]:
    """Join the three files that an analysis is stored as, which are in one folder."""
    parts: dict[Path, dict[type[Record], Record]] = {}
    for path, record in records.items():
        parts.setdefault(path.parent, {})[type(record)] = record
    analyses = []
    for found in parts.values():
        modules, ops, cost = (found.get(kind) for kind in (ModuleTable, OpTable, Cost))
        if isinstance(modules, ModuleTable) and isinstance(ops, OpTable) and isinstance(cost, Cost):
            name = modules.metadata.load_fn_location or cost.model_class
            analyses.append(Analysis(name, modules, ops, cost))
    return analyses


def _survey_folders(directory: Path) -> set[Path]:
    """Return the folders whose files are read as part of the survey, not as records of their own."""
    return {directory / ROWS, directory / RAW, directory / PROFILE} if holds_survey(directory) else set()


def _with_parents(path: Path) -> tuple[Path, ...]:
    return (path, *path.parents)


def _read_survey(directory: Path, limits: Limits, problems: list[Problem], *, alone: bool) -> Survey | None:
    """Read the survey; if that fails, raise if it is all there is, else report it as a problem."""
    try:
        return read_survey(directory, limits)
    except ReportError as error:
        if alone:
            raise
        problems.append(Problem.of(error))
        return None


def _read(path: Path) -> Record | None:
    data = read_json(path)
    kind = _kind_of(data)
    return None if kind is None else decode_record(data, kind, path)


def _kind_of(data: JSON) -> type[Record] | None:
    """Return the record class that a file's schema names, whatever the schema's version."""
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if not isinstance(schema, str):
        return None
    for kind in _KINDS:
        if schema.split("/")[0] == kind.schema.split("/")[0]:
            return kind
    return None

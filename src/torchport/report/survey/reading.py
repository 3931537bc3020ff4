"""Aggregates a survey over its models, in DuckDB: always in two passes over the raw files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchport.errors import ReportError
from torchport.records import SurveyRow
from torchport.report.problem import Problem
from torchport.report.survey.database import DEFAULT_LIMITS, Limits, SurveyDatabase, one_line_of, open_survey
from torchport.report.survey.files import RAW, find_survey
from torchport.report.survey.records import (
    DIRECTIONS,
    ArgumentCount,
    ModelUse,
    OpCount,
    SizeCount,
    Survey,
    SurveyModel,
)

# Identical rows are counted first; only then are the lists of arguments unnested, a few thousand rather than
# millions.
_PASSES = (
    """CREATE OR REPLACE TEMP TABLE uses AS
       SELECT direction, op, arguments, input_bytes, output_bytes, count(*) AS count
       FROM ops GROUP BY direction, op, arguments, input_bytes, output_bytes""",
    "CREATE OR REPLACE TEMP TABLE counts AS FROM op_counts",
)
_OPS = """
    SELECT direction, op, sum(count)::BIGINT AS times, count(DISTINCT (raw, model)), coalesce(sum(flops), 0)
    FROM counts GROUP BY direction, op ORDER BY direction DESC, times DESC, op"""
_SIZES = """
    SELECT direction, op, side, bytes, sum(count)::BIGINT
    FROM (SELECT direction, op, 'input' AS side, input_bytes AS bytes, count FROM uses
          UNION ALL SELECT direction, op, 'output', output_bytes, count FROM uses)
    GROUP BY direction, op, side, bytes ORDER BY direction DESC, op, side, bytes NULLS LAST"""
_ARGUMENTS = r"""
    SELECT direction, op, coalesce(argument.name, '') AS name, coalesce(argument.value, '') AS value,
           sum(count)::BIGINT
    FROM (SELECT direction, op, count, unnest(arguments) AS argument FROM uses)
    GROUP BY direction, op, name, value
    ORDER BY direction DESC, op,
             try_cast(regexp_extract(name, '^arg(\d+)$', 1) AS BIGINT) NULLS LAST, name, value"""
_MODELS = """
    SELECT raw, model, sum(count) FILTER (direction = 'fw')::BIGINT, count(op) FILTER (direction = 'fw'),
           sum(count) FILTER (direction = 'bw')::BIGINT, count(op) FILTER (direction = 'bw'),
           coalesce(max(graphs) FILTER (direction = 'fw'), 0)
               + coalesce(max(graphs) FILTER (direction = 'bw'), 0),
           coalesce(sum(flops), 0)
    FROM counts GROUP BY raw, model ORDER BY model, raw"""
_USAGE = "SELECT model, op, sum(count)::BIGINT FROM counts GROUP BY model, op ORDER BY model, op"
_LONGEST = 1000  # the most characters of a name: torch's own have a tenth of that
_MOST_OPS, _MOST_ROWS = 10_000, 1_000_000  # torch has some three thousand ops, and each gets its own files
_WRONG = f"""
    SELECT raw, min(wrong)
    FROM (SELECT raw, CASE
              WHEN direction IS NULL OR direction NOT IN {DIRECTIONS}
              THEN 'holds ops of the direction ' || coalesce('\'\'' || direction[:100] || '\'\'', 'null')
                   || ', which is not one of {", ".join(DIRECTIONS)}'
              WHEN op IS NULL OR op = '' THEN 'holds an op without a name'
              WHEN model IS NULL THEN 'holds an op without a model'
              WHEN greatest(length(op), length(model)) > {_LONGEST}
              THEN 'holds an op or a model whose name has more than {_LONGEST} characters'
          END AS wrong FROM counts)
    WHERE wrong IS NOT NULL GROUP BY raw"""  # raw files with ops that a survey cannot contain, and why


def read_survey(directory: Path, limits: Limits = DEFAULT_LIMITS) -> Survey:
    """Aggregate the ops that the models of a survey use.

    Needs no torch. A raw file that is truncated, damaged or of another format is excluded, and listed among
    the survey's problems.

    Args:
        directory: the directory that `torchport survey -o` wrote to.
        limits: the limits of memory, threads and time.

    Returns:
        The survey; the same for the same raw files, whatever their order and the number of threads.

    Raises:
        ReportError: there is no such directory, it holds no survey, none of its models is ok, or aggregating
            it exceeds the limits.

    Example:
        >>> survey = read_survey(Path("stat"))
        >>> [(op.op, op.count) for op in survey.ops_of("fw")[:3]]
    """
    with open_survey(find_survey(directory), limits) as database:
        import duckdb

        try:
            _count(database)
            models = _models(database)
            if not any(model.status == "ok" for model in models):
                raise _nothing_to_show(directory, models, database.problems)
            return Survey(
                models,
                tuple(OpCount(*row) for row in _rows(database, _OPS, "ops", _MOST_OPS)),
                tuple(SizeCount(*row) for row in _rows(database, _SIZES, "sizes of ops")),
                tuple(ArgumentCount(*row) for row in _rows(database, _ARGUMENTS, "values of arguments")),
                tuple(database.problems),
                tuple(ModelUse(*row) for row in _rows(database, _USAGE, "uses of ops")),
            )
        except duckdb.Error as error:
            raise ReportError(f"cannot be aggregated: {one_line_of(error)}", where=str(directory)) from error


def _rows(database: SurveyDatabase, sql: str, what: str, most: int = _MOST_ROWS) -> list[tuple[Any, ...]]:
    """Return the rows of a query; raise if there are more than a survey may have."""
    rows = database.run(sql, most=most + 1).rows
    if len(rows) > most:
        raise ReportError(
            f"holds more than {most:,} different {what}",
            where=str(database.files.directory),
            remedy="query it with --sql, or remove the raw file that they come from",
        )
    return rows


def _count(database: SurveyDatabase) -> None:
    """Run the two passes; repeat them if a file was excluded, so that both count the same files."""
    counted = -1
    while counted != len(database.raw):
        counted = len(database.raw)
        for statement in _PASSES:
            database.run(statement)
        _leave_out_wrong(database)


def _leave_out_wrong(database: SurveyDatabase) -> None:
    """Exclude the raw files with ops that a survey cannot contain."""
    wrong = {str(raw): str(reason) for raw, reason in _rows(database, _WRONG, "raw files")}
    if wrong:
        database.leave_out(wrong)


def _models(database: SurveyDatabase) -> tuple[SurveyModel, ...]:
    """Return a row for each model, combined from its survey row and its raw file."""
    counted = {row[0]: _Counted(*row[1:]) for row in _rows(database, _MODELS, "models")}
    if not database.files.rows:
        return tuple(_model(None, found) for found in counted.values())
    models = []
    for row in database.files.rows:
        found = counted.get(row.raw)
        if row.status == "ok" and found is not None:
            database.problems += _contradictions(database, row, found)
        models.append(_model(row, found))
    return tuple(models)


@dataclass(frozen=True, slots=True)
class _Counted:
    """The totals of a raw file."""

    model: str
    forward_ops: int | None
    forward_unique: int
    backward_ops: int | None
    backward_unique: int
    graphs: int
    flops: int


def _model(row: SurveyRow | None, found: _Counted | None) -> SurveyModel:
    if row is not None and (found is None or row.status != "ok"):
        # An ok model that was not counted has no ops, or its raw file is among the problems.
        return SurveyModel(
            row.model,
            row.status,
            row.error,
            forward_ops=row.forward_ops,
            backward_ops=row.backward_ops,
            graphs=row.graphs,
            seconds=row.seconds,
            peak_bytes=row.peak_bytes,
        )
    assert found is not None
    return SurveyModel(
        row.model if row else found.model,
        "ok",
        "",
        found.forward_ops,
        found.forward_unique if found.forward_ops is not None else None,
        found.backward_ops,
        found.backward_unique if found.backward_ops is not None else None,
        row.graphs if row else found.graphs,
        found.flops,
        row.seconds if row else None,
        row.peak_bytes if row else None,
    )


def _contradictions(database: SurveyDatabase, row: SurveyRow, found: _Counted) -> list[Problem]:
    """Return where a row and its raw file disagree: one of them is from another survey."""
    path = str(database.files.directory / RAW / row.raw)
    facts = [
        ("model", row.model, found.model),
        ("forward ops", row.forward_ops or 0, found.forward_ops or 0),
        ("backward ops", row.backward_ops or 0, found.backward_ops or 0),
    ]
    return [
        Problem(path, f"its row has {said!r} for {what}, but the file has {held!r}: survey the model again")
        for what, said, held in facts
        if said != held
    ]


def _nothing_to_show(
    directory: Path, models: tuple[SurveyModel, ...], problems: list[Problem]
) -> ReportError:
    if models:
        first = models[0]
        return ReportError(
            f"none of the survey's {len(models)} models is ok; {first.model}: {first.status}: {first.error}",
            where=str(directory),
            remedy="fix the errors in the rows, and survey again",
        )
    first_problem = f"; {problems[0].path}: {problems[0].detail}" if problems else ""
    return ReportError(f"the survey holds no ops{first_problem}", where=str(directory))

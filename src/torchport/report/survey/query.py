"""Asks a survey a question in SQL: reads, and cannot write or reach other files."""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchport.errors import ReportError
from torchport.records import JSON
from torchport.report.problem import Problem
from torchport.report.survey.database import DEFAULT_LIMITS, Limits, SurveyDatabase, one_line_of, open_survey
from torchport.report.survey.files import find_survey
from torchport.report.survey.views import NAMES

MOST_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer to a question.

    Args:
        columns: their names, no two alike.
        rows: their values, as JSON has them.
        problems: the raw files that could not be asked.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[JSON, ...], ...]
    problems: tuple[Problem, ...]

    def to_json(self) -> list[dict[str, JSON]]:
        """Return the rows, each as an object."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def query_survey(directory: Path, sql: str, limits: Limits = DEFAULT_LIMITS) -> QueryResult:
    """Ask a survey a question in SQL.

    The tables are `ops` (a row an op of a graph), `models` (a row a model), and the views `arguments`,
    `inputs`, `outputs`, `op_counts` and `configurations`.

    Args:
        directory: what `torchport survey -o` wrote to.
        sql: one SELECT, or what DuckDB takes for one: FROM, WITH, DESCRIBE, SUMMARIZE, PIVOT.
        limits: of memory, threads and time.

    Raises:
        ReportError: there is no survey, the SQL is wrong or no question, takes too long or gives too many
            rows.

    Example:
        >>> query_survey(Path("stat"), "SELECT op, count(*) FROM ops GROUP BY op ORDER BY 2 DESC LIMIT 10")
    """
    with open_survey(find_survey(directory), limits) as database:
        import duckdb

        try:
            _refuse_all_but_questions(database, sql)
            answer = database.run(sql, most=MOST_ROWS + 1)
        except duckdb.Error as error:
            raise ReportError(f"the SQL fails: {one_line_of(error)}", remedy=_REMEDY) from error
        problems = tuple(database.problems)
    if len(answer.rows) > MOST_ROWS:
        raise ReportError(
            f"the SQL gives more than {MOST_ROWS:,} rows",
            remedy="end it with LIMIT, or add up; raw/*.parquet can be opened with DuckDB itself too",
        )
    rows = tuple(tuple(_json(value) for value in row) for row in answer.rows)
    return QueryResult(_distinct(answer.columns), rows, problems)


_REMEDY = f"the tables are {', '.join(NAMES)}; `DESCRIBE ops` lists columns"


def _refuse_all_but_questions(database: SurveyDatabase, sql: str) -> None:
    import duckdb

    statements = database.statements(sql)
    # PIVOT alone of the questions is taken apart into several statements.
    pivot = re.match(r"\s*(PIVOT|UNPIVOT)\b", sql, re.IGNORECASE)
    questions = {duckdb.StatementType.SELECT, *([duckdb.StatementType.MULTI] if pivot else [])}
    if len(statements) != 1 or statements[0].type not in questions:
        raise ReportError("the SQL is not one question", remedy="write one SELECT: a report only reads")


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Number names that come again, as DuckDB does when it makes a table of them."""
    distinct: list[str] = []
    for name in names:
        number, candidate = 0, name
        while candidate in distinct:
            number += 1
            candidate = f"{name}_{number}"
        distinct.append(candidate)
    return tuple(distinct)


def _json(value: object) -> JSON:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    return str(value)

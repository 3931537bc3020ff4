"""Queries a survey with SQL, which can only read and cannot access other files."""

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
_LONGEST = 50_000  # characters of SQL: DuckDB's parser may overflow the stack on longer ones


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a query.

    Args:
        columns: the names of the columns, made unique.
        rows: their values, as JSON values.
        problems: the raw files that could not be queried.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[JSON, ...], ...]
    problems: tuple[Problem, ...]

    def to_json(self) -> list[dict[str, JSON]]:
        """Return the rows, each as a JSON object."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def query_survey(directory: Path, sql: str, limits: Limits = DEFAULT_LIMITS) -> QueryResult:
    """Query a survey with SQL.

    The tables are `ops` (one row per op of a graph), `models` (one row per model), and the views `arguments`,
    `inputs`, `outputs`, `op_counts` and `configurations`.

    Args:
        directory: the directory that `torchport survey -o` wrote to.
        sql: one SELECT, or what DuckDB treats as one: FROM, WITH, DESCRIBE, SUMMARIZE, PIVOT.
        limits: the limits of memory, threads and time.

    Raises:
        ReportError: there is no survey, or the SQL is invalid, is not a single query, takes too long or
            returns too many rows.

    Example:
        >>> query_survey(Path("stat"), "SELECT op, count(*) FROM ops GROUP BY op ORDER BY 2 DESC LIMIT 10")
    """
    with open_survey(find_survey(directory), limits) as database:
        import duckdb

        try:
            _check_is_query(database, sql)
            answer = database.run(sql, most=MOST_ROWS + 1)
        except duckdb.Error as error:
            raise ReportError(f"the SQL fails: {one_line_of(error)}", remedy=_REMEDY) from error
        problems = tuple(database.problems)
    if len(answer.rows) > MOST_ROWS:
        raise ReportError(
            f"the SQL returns more than {MOST_ROWS:,} rows",
            remedy="add a LIMIT, or aggregate; raw/*.parquet can also be opened with DuckDB itself",
        )
    rows = tuple(tuple(_json(value) for value in row) for row in answer.rows)
    return QueryResult(_distinct(answer.columns), rows, problems)


_REMEDY = f"the tables are {', '.join(NAMES)}; `DESCRIBE ops` lists columns"


def _check_is_query(database: SurveyDatabase, sql: str) -> None:
    import duckdb

    if len(sql) > _LONGEST:
        raise ReportError(f"the SQL has {len(sql):,} characters", remedy=f"write at most {_LONGEST:,}")
    if any("\ud800" <= character <= "\udfff" for character in sql):
        raise ReportError("the SQL is not valid Unicode", remedy="encode it as UTF-8")
    statements = database.statements(sql)
    # PIVOT is the only query that DuckDB splits into several statements.
    pivot = re.match(r"\s*(PIVOT|UNPIVOT)\b", sql, re.IGNORECASE)
    queries = {duckdb.StatementType.SELECT, *([duckdb.StatementType.MULTI] if pivot else [])}
    if len(statements) != 1 or statements[0].type not in queries:
        raise ReportError("the SQL is not a single query", remedy="write one SELECT: a report only reads")


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Number repeated names, as DuckDB does when it creates a table with them."""
    distinct: dict[str, None] = {}
    last: dict[str, int] = {}
    for name in names:
        number, candidate = last.get(name, 0), name
        while candidate in distinct:
            number += 1
            candidate = f"{name}_{number}"
        last[name] = number
        distinct[candidate] = None
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

"""Opens a survey in DuckDB, with raw files as tables, limited memory, and no access to other files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchport.errors import ReportError
from torchport.records import RAW_COLUMNS, RAW_FORMAT, temporary_folder
from torchport.report.problem import Problem
from torchport.report.survey.files import RAW, SurveyFiles
from torchport.report.survey.time_limit import TimeLimit
from torchport.report.survey.views import (
    MODELS_WITHOUT_ROWS,
    ROW_COLUMNS,
    VIEWS,
    ops_select,
    pattern_of,
    text_literal,
)

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an aggregation or query.

    Args:
        memory: the memory of DuckDB, in its notation for sizes; beyond it, data spill to temporary files.
        threads: the number of threads; by default the number of cores.
        disk: the most disk space for those temporary files.
        seconds: the most time in total.
    """

    memory: str = "1GB"
    threads: int | None = None
    disk: str = "16GB"
    seconds: float = 120.0


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a statement.

    Args:
        columns: the names of the columns.
        rows: their values.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class SurveyDatabase:
    """A survey as tables: `ops`, `models` and the views on them.

    Args:
        files: the files that `find_survey` found.
        connection: the connection to DuckDB.
        limit: the time limit of its statements.
    """

    def __init__(self, files: SurveyFiles, connection: duckdb.DuckDBPyConnection, limit: TimeLimit) -> None:
        self.files = files
        self.problems = list(files.problems)
        self.raw = list(files.raw)
        self._connection = connection
        self._limit = limit

    def run(self, sql: str, most: int | None = None) -> Answer:
        """Run a statement; raw files that turn out to be damaged are excluded, and become problems.

        Args:
            sql: the statement.
            most: the most rows to fetch; all by default.

        Raises:
            duckdb.Error: the statement is invalid, or takes too much memory.
            ReportError: the statement takes too long.
        """
        import duckdb

        try:
            return self._execute(sql, most=most)
        except duckdb.Error as error:
            if isinstance(error, _statement_errors()) or not self.leave_out_damaged():
                raise
            return self._execute(sql, most=most)

    def _execute(self, sql: str, parameters: Sequence[str] = (), most: int | None = None) -> Answer:
        """Run a statement and fetch its rows, within the time limit."""
        with self._limit.watching():
            done = self._connection.execute(sql, list(parameters))
            columns = tuple(column[0] for column in done.description or ())
            rows = done.fetchall() if most is None else done.fetchmany(most)
        return Answer(columns, rows)

    def statements(self, sql: str) -> list[duckdb.Statement]:
        """Return the statements of a text.

        Raises:
            duckdb.ParserException: the text is not SQL.
        """
        return self._connection.extract_statements(sql)

    def check_formats(self) -> None:
        """Exclude the raw files that are of another format, or whose columns have other types.

        DuckDB reads all files with the types of the first one, so that one could change another's values.
        """
        import duckdb

        try:
            formats, schemas = self._formats(), self._schemas()
        except duckdb.Error:  # the footer of one of them cannot be read
            self._leave_out({path: reason for path in self.raw if (reason := self._damage(path))})
            formats, schemas = self._formats(), self._schemas()
        self._leave_out(
            {
                path: _wrong_format(found)
                for path in self.raw
                if (found := formats.get(str(path))) != RAW_FORMAT
            }
        )
        by_schema = {schemas.get(str(path), str(path)): path for path in self.raw}
        wrong = {schema: self._wrong_column(path) for schema, path in by_schema.items()}
        self._leave_out(
            {path: reason for path in self.raw if (reason := wrong[schemas.get(str(path), str(path))])}
        )

    def _formats(self) -> dict[str, str]:
        if not self.raw:
            return {}
        listed = ", ".join(text_literal(pattern_of(path)) for path in self.raw)
        asked = f"SELECT file_name, value::VARCHAR FROM parquet_kv_metadata([{listed}]) WHERE key = 'format'"
        return {str(file): str(value) for file, value in self._execute(asked).rows}

    def _schemas(self) -> dict[str, tuple[object, ...]]:
        """Return what determines the columns' types in each file."""
        if not self.raw:
            return {}
        listed = ", ".join(text_literal(pattern_of(path)) for path in self.raw)
        found: dict[str, list[object]] = {}
        for file, *column in self._execute(f"SELECT * FROM parquet_schema([{listed}])").rows:
            found.setdefault(str(file), []).append(str(column))
        return {file: tuple(columns) for file, columns in found.items()}

    def _wrong_column(self, path: Path) -> str:
        """Return which column a raw file lacks or has with another type; empty if there is none."""
        expected, found = (
            {name: kind for name, kind, *_ in self._execute(f"DESCRIBE {source}").rows}
            for source in (ops_select([]), f"FROM {_reading(path)}")
        )
        for name in RAW_COLUMNS:
            if name not in found:
                return f"lacks the column {name!r}"
            if found[name] != expected[name]:
                return f"has the column {name!r} as {found[name]:.100}, not {expected[name]}"
        return ""

    def make_views(self) -> None:
        """Create the tables and views that SQL can query."""
        self._execute(f"CREATE OR REPLACE VIEW ops AS {ops_select(self.raw)}")
        if self.files.rows:
            fields = ", ".join(f"{name} {kind}" for name, kind in ROW_COLUMNS.items())
            rows = json.dumps([row.to_json() for row in self.files.rows])
            self._execute(f"CREATE OR REPLACE TABLE models ({fields})")
            self._execute(
                "INSERT INTO models SELECT unnest(from_json(?, ?), max_depth := 2)",
                [rows, json.dumps([ROW_COLUMNS])],
            )
        else:
            self._execute(f"CREATE OR REPLACE VIEW models AS {MODELS_WITHOUT_ROWS}")
        for name, select in VIEWS.items():
            self._execute(f"CREATE OR REPLACE VIEW {name} AS {select}")

    def leave_out_damaged(self) -> bool:
        """Read every raw file completely, and exclude the damaged ones; return whether there are any."""
        damaged = {path: reason for path in self.raw if (reason := self._damage(path))}
        self._leave_out(damaged)
        self.make_views()
        return bool(damaged)

    def leave_out(self, reasons: dict[str, str]) -> None:
        """Exclude raw files by name, each with a reason."""
        self._leave_out({path: reasons[path.name] for path in self.raw if path.name in reasons})
        self.make_views()

    def _leave_out(self, reasons: dict[Path, str]) -> None:
        self.raw = [path for path in self.raw if path not in reasons]
        self.problems += [
            Problem(
                str(self.files.directory / RAW / path.name),
                f"{reason}: delete it, and survey its model again",
            )
            for path, reason in reasons.items()
        ]

    def _damage(self, path: Path) -> str:
        """Return why a raw file cannot be read; empty if it can."""
        import duckdb

        try:
            if wrong := self._wrong_column(path):
                return wrong
            self._execute(f"SELECT bit_xor(hash(ops)) FROM ({ops_select([path])}) ops")
        except duckdb.Error as error:
            return f"is damaged ({one_line_of(error).replace(str(path), path.name)})"
        return ""


def _reading(path: Path) -> str:
    return f"read_parquet({text_literal(pattern_of(path))}, hive_partitioning = false)"


@contextlib.contextmanager
def open_survey(files: SurveyFiles, limits: Limits = DEFAULT_LIMITS) -> Iterator[SurveyDatabase]:
    """Open a survey for queries; closing it leaves nothing behind.

    Statements can read the survey's raw files and no other files, and cannot lift that restriction.

    Raises:
        ReportError: DuckDB is not installed, or a statement takes too long.
    """
    try:
        import duckdb
    except ImportError as error:
        raise ReportError(
            "a survey is read with DuckDB, which is not installed", remedy="pip install 'torchport[survey]'"
        ) from error
    with temporary_folder("report") as spill:
        connection = duckdb.connect(config={"python_enable_replacements": "false"})
        with contextlib.closing(connection), TimeLimit(connection, limits.seconds) as limit:
            found = _resolved(files)
            _confine(connection, found.raw, spill, limits)
            database = SurveyDatabase(found, connection, limit)
            database.check_formats()
            try:
                database.make_views()
            except duckdb.Error:  # the first file, which determines the columns, is invalid
                if not database.leave_out_damaged():
                    raise
            yield database


def one_line_of(error: duckdb.Error) -> str:
    """Return DuckDB's message as one line, without the excerpt of the statement."""
    kept = []
    for line in str(error).splitlines():
        if line.startswith("LINE "):
            break
        kept.append(line.strip())
    return " ".join(line for line in kept if line)


def _statement_errors() -> tuple[type[duckdb.Error], ...]:
    """Return the errors that the statement causes, rather than damaged files."""
    import duckdb

    return (
        duckdb.ParserException,
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.ConversionException,
        duckdb.InterruptException,
        duckdb.OutOfMemoryException,
        duckdb.OutOfRangeException,
        duckdb.PermissionException,
    )


def _confine(connection: duckdb.DuckDBPyConnection, raw: Sequence[Path], spill: Path, limits: Limits) -> None:
    # Each file's path, and the pattern that matches it. Allowing the folder would allow links in it too.
    paths = ", ".join(text_literal(text) for path in raw for text in (str(path), pattern_of(path)))
    settings = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "enable_progress_bar": "false",  # it would be written to standard output
        "preserve_insertion_order": "false",  # queries here sort their results; preserving order costs memory
        "memory_limit": text_literal(limits.memory),
        "temp_directory": text_literal(str(spill)),
        "max_temp_directory_size": text_literal(limits.disk),
        "allowed_paths": f"[{paths}]",
        "enable_external_access": "false",
    }
    if limits.threads is not None:
        settings = {"threads": str(limits.threads), **settings}
    for name, value in (settings | {"lock_configuration": "true"}).items():
        connection.execute(f"SET {name} = {value}")


def _resolved(files: SurveyFiles) -> SurveyFiles:
    folder = files.directory.resolve() / RAW  # `raw` itself is known not to be a link
    raw = tuple(folder / path.name for path in files.raw)
    return SurveyFiles(files.directory, files.rows, raw, files.problems)


def _wrong_format(found: str | None) -> str:
    if found is None:
        return "is not a raw file of a survey"
    return f"is of the format {found!r}, not {RAW_FORMAT!r}"

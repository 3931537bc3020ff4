"""Opens a survey in DuckDB: raw files as tables, with a limit of memory, and nothing else within reach."""

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
    """What an aggregation may take.

    Args:
        memory: for DuckDB's own tables, as it writes sizes; beyond it goes to temporary files.
        threads: how many; by default as many as there are cores.
        disk: for those temporary files.
        seconds: how long all of it may take.
    """

    memory: str = "1GB"
    threads: int | None = None
    disk: str = "16GB"
    seconds: float = 120.0


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gave.

    Args:
        columns: their names.
        rows: their values.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class SurveyDatabase:
    """A survey as tables: `ops`, `models` and the views upon them.

    Args:
        files: what `find_survey` found.
        connection: to DuckDB.
    """

    def __init__(self, files: SurveyFiles, connection: duckdb.DuckDBPyConnection, limit: TimeLimit) -> None:
        self.files = files
        self.problems = list(files.problems)
        self.raw = list(files.raw)
        self._connection = connection
        self._limit = limit

    def run(self, sql: str, most: int | None = None) -> Answer:
        """Run a statement; raw files that turn out to be damaged are left out, and become problems.

        Args:
            sql: the statement.
            most: how many rows are wanted; all by default.

        Raises:
            duckdb.Error: the statement is wrong, or takes too much memory.
            ReportError: it takes too long.
        """
        import duckdb

        try:
            return self._execute(sql, most=most)
        except duckdb.Error as error:
            if isinstance(error, _mistakes()) or not self.leave_out_damaged():
                raise
            return self._execute(sql, most=most)

    def _execute(self, sql: str, parameters: Sequence[str] = (), most: int | None = None) -> Answer:
        """Run a statement and fetch its rows, within the limit of time."""
        with self._limit.watching():
            done = self._connection.execute(sql, list(parameters))
            columns = tuple(column[0] for column in done.description or ())
            rows = done.fetchall() if most is None else done.fetchmany(most)
        return Answer(columns, rows)

    def statements(self, sql: str) -> list[duckdb.Statement]:
        """Return the statements of a text.

        Raises:
            duckdb.ParserException: it is not SQL.
        """
        return self._connection.extract_statements(sql)

    def check_formats(self) -> None:
        """Leave out the raw files that are of another format."""
        import duckdb

        try:
            formats = self._formats()
        except duckdb.Error:  # one of them has no footer that can be read
            self._leave_out({path: reason for path in self.raw if (reason := self._damage(path))})
            formats = self._formats()
        self._leave_out(
            {
                path: _wrong_format(found)
                for path in self.raw
                if (found := formats.get(str(path))) != RAW_FORMAT
            }
        )

    def _formats(self) -> dict[str, str]:
        if not self.raw:
            return {}
        listed = ", ".join(text_literal(pattern_of(path)) for path in self.raw)
        asked = f"SELECT file_name, value::VARCHAR FROM parquet_kv_metadata([{listed}]) WHERE key = 'format'"
        return {str(file): str(value) for file, value in self._execute(asked).rows}

    def make_views(self) -> None:
        """Make the tables that SQL asks about."""
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
        """Read every raw file whole, and leave out those that cannot be; say whether there are any."""
        damaged = {path: reason for path in self.raw if (reason := self._damage(path))}
        self._leave_out(damaged)
        self.make_views()
        return bool(damaged)

    def leave_out(self, reasons: dict[str, str]) -> None:
        """Leave out raw files by name, each for a reason."""
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

        source = f"read_parquet({text_literal(pattern_of(path))}, hive_partitioning = false)"
        try:
            found = {row[0] for row in self._execute(f"DESCRIBE FROM {source}").rows}
            if missing := [name for name in RAW_COLUMNS if name not in found]:
                return f"lacks the column {missing[0]!r}"
            self._execute(f"SELECT bit_xor(hash(ops)) FROM ({ops_select([path])}) ops")
        except duckdb.Error as error:
            return f"is damaged ({one_line_of(error).replace(str(path), path.name)})"
        return ""


@contextlib.contextmanager
def open_survey(files: SurveyFiles, limits: Limits = DEFAULT_LIMITS) -> Iterator[SurveyDatabase]:
    """Open a survey for questions; closed, it leaves nothing behind.

    Statements can read the survey's raw files and no other file, and cannot lift that.

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
            except duckdb.Error:  # the first file, which says what columns there are, is not as it should be
                if not database.leave_out_damaged():
                    raise
            yield database


def one_line_of(error: duckdb.Error) -> str:
    """Return DuckDB's message as one line, without the drawing that points into the statement."""
    kept = []
    for line in str(error).splitlines():
        if line.startswith("LINE "):
            break
        kept.append(line.strip())
    return " ".join(line for line in kept if line)


def _mistakes() -> tuple[type[duckdb.Error], ...]:
    """Return the errors that are the statement's own, whatever the files are like."""
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
    # Each file as it is, and as the pattern that stands for it; a folder would let links in it be followed.
    paths = ", ".join(text_literal(text) for path in raw for text in (str(path), pattern_of(path)))
    settings = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "enable_progress_bar": "false",  # it would write to standard output
        "preserve_insertion_order": "false",  # every answer here is sorted; keeping order costs memory
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
    folder = files.directory.resolve() / RAW  # the last of which is no link
    raw = tuple(folder / path.name for path in files.raw)
    return SurveyFiles(files.directory, files.rows, raw, files.problems)


def _wrong_format(found: str | None) -> str:
    if found is None:
        return "is not a raw file of a survey"
    return f"is of the format {found!r}, not {RAW_FORMAT!r}"

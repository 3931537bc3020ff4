"""Writes rows of ops as a raw file: Parquet, by DuckDB, atomically."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from torchport.errors import SurveyError
from torchport.records import RAW_COLUMNS, RAW_FORMAT, atomic_write, temporary_folder
from torchport.survey.stat.op_rows import Row

_COLUMNS = ", ".join(f"'{name}': '{kind}'" for name, kind in RAW_COLUMNS.items())


def write_raw_file(rows: Iterable[Row], path: Path) -> None:
    """Write rows as a raw file. The same rows give the same bytes.

    Args:
        rows: with the columns of `RAW_COLUMNS`.
        path: where; folders that are missing are made.

    Raises:
        RecordError: the file cannot be written; nothing of it is left.
        SurveyError: DuckDB is not installed.
    """
    duckdb = import_duckdb()
    with atomic_write(path) as temporary, temporary_folder("rows") as folder:
        lines = folder / "rows.jsonl"
        # A name may hold half of a pair, which neither UTF-8 nor DuckDB has a form for.
        with lines.open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        # One thread: the order of rows, and with it the bytes, are then always the same.
        connection = duckdb.connect(config={"threads": 1})
        try:
            connection.execute(
                f"COPY (FROM read_json({_text(lines)}, format = 'newline_delimited', "
                f"columns = {{{_COLUMNS}}}, maximum_object_size = 268435456)) TO {_text(temporary)} "
                f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{format: '{RAW_FORMAT}'}})"
            )
        except duckdb.IOException as error:
            raise OSError(None, str(error).splitlines()[0]) from error
        finally:
            connection.close()


def import_duckdb() -> ModuleType:
    """Return DuckDB.

    Raises:
        SurveyError: it is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise SurveyError(
            "a survey's files are written by DuckDB, which is not installed",
            remedy='pip install "torchport[survey]"',
        ) from error
    return duckdb


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"

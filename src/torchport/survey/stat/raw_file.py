"""Writes rows of ops as a raw file: Parquet, written by DuckDB, atomically."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from torchport.errors import SurveyError
from torchport.records import JSON, RAW_COLUMNS, RAW_FORMAT, atomic_write, temporary_folder

Row = dict[str, JSON]
_COLUMNS = ", ".join(f"'{name}': '{kind}'" for name, kind in RAW_COLUMNS.items())


def write_raw_file(rows: Iterable[Row], path: Path) -> None:
    """Write rows as a raw file. The same rows give the same bytes.

    Args:
        rows: the rows, with the columns of `RAW_COLUMNS`.
        path: the file; missing folders are created.

    Raises:
        RecordError: the file cannot be written; no partial file is left.
        SurveyError: DuckDB is not installed.
    """
    duckdb = import_duckdb()
    with atomic_write(path) as temporary, temporary_folder("rows") as folder:
        lines = folder / "rows.jsonl"
        # A name may contain a lone surrogate, which neither UTF-8 nor DuckDB can represent.
        with lines.open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        # With one thread, the order of rows, and so the bytes, are deterministic.
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
    """Return the module of DuckDB.

    Raises:
        SurveyError: DuckDB is not installed.
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

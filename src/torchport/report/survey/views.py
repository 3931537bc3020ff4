"""The tables and views that SQL can query: their names, their columns, and how raw files provide them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from pathlib import Path

from torchport.records import NOT_JSONABLE, RAW_COLUMNS, SurveyRow

_KINDS: dict[object, str] = {
    str: "VARCHAR",
    int: "BIGINT",
    int | None: "BIGINT",
    float: "DOUBLE",
    dict[str, str]: "JSON",
}
_HINTS = typing.get_type_hints(SurveyRow)
ROW_COLUMNS = {
    field.name: _KINDS.get(_HINTS[field.name], "VARCHAR") for field in dataclasses.fields(SurveyRow)
}
"""The columns of `models`: the fields of `SurveyRow`."""

VIEWS = {
    "arguments": """
        SELECT * EXCLUDE (argument), argument.name, argument.parameter, argument.value
        FROM (SELECT raw, model, direction, graph, node, op, unnest(arguments) AS argument FROM ops)""",
    "inputs": """
        SELECT * EXCLUDE (tensor), tensor.node AS producer, tensor.name, tensor.dtype, tensor.shape,
               tensor.bytes
        FROM (SELECT raw, model, direction, graph, node, op, unnest(inputs) AS tensor FROM ops)""",
    "outputs": """
        SELECT * EXCLUDE (tensor), tensor.dtype, tensor.shape, tensor.bytes
        FROM (SELECT raw, model, direction, graph, node, op, unnest(outputs) AS tensor FROM ops)""",
    "op_counts": """
        SELECT raw, model, direction, op, count(*) AS count, sum(flops) AS flops, max(graph) + 1 AS graphs
        FROM ops GROUP BY raw, model, direction, op""",
    "configurations": f"""
        SELECT direction, op, shapes, dtypes, attributes, count(*) AS count, count(DISTINCT model) AS models,
               sum(flops) AS flops, sum(flops) / sum(sum(flops)) OVER () AS flop_share,
               list_sort(list_distinct(min(model || ' ' || module_path, 3))) AS examples
        FROM (SELECT direction, op, model, module_path, flops,
                     list_transform(inputs, lambda tensor: tensor.shape) AS shapes,
                     list_transform(inputs, lambda tensor: tensor.dtype) AS dtypes,
                     list_transform(
                         list_filter(arguments, lambda argument: argument.value <> '{NOT_JSONABLE}'),
                         lambda argument: (CASE WHEN argument.parameter <> '' THEN argument.parameter
                                           ELSE argument.name END) || '=' || argument.value) AS attributes
              FROM ops)
        GROUP BY direction, op, shapes, dtypes, attributes""",
}  # fmt: skip
"""The views on `ops`, by name."""

_WITHOUT_ROWS = {
    "model": "model",
    "status": "'ok'",
    "forward_ops": "nullif(count(*) FILTER (direction = 'fw'), 0)",
    "backward_ops": "nullif(count(*) FILTER (direction = 'bw'), 0)",
    "graphs": "count(DISTINCT (direction, graph))",
    "raw": "raw",
}
MODELS_WITHOUT_ROWS = "SELECT {} FROM ops GROUP BY model, raw".format(
    ", ".join(f"{_WITHOUT_ROWS.get(name, 'NULL')}::{kind} AS {name}" for name, kind in ROW_COLUMNS.items())
)
"""The view `models` of a survey without rows, derived from the raw files."""

NAMES = ("ops", "models", *VIEWS)


def ops_select(files: Iterable[Path]) -> str:
    """Return the SELECT that reads raw files, with each column cast to its type."""
    paths = list(files)
    if not paths:
        columns = ", ".join(f"NULL::{kind} AS {name}" for name, kind in RAW_COLUMNS.items())
        return f"SELECT {columns}, NULL::VARCHAR AS raw WHERE false"
    columns = ", ".join(f"{name}::{kind} AS {name}" for name, kind in RAW_COLUMNS.items())
    listed = ", ".join(text_literal(pattern_of(path)) for path in paths)
    return (
        f"SELECT {columns}, parse_filename(filename) AS raw "
        f"FROM read_parquet([{listed}], filename = true, hive_partitioning = false)"
    )


def pattern_of(path: Path) -> str:
    """Return a pattern that matches only this path, since DuckDB treats every file name as a pattern."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in str(path))


def text_literal(text: str) -> str:
    """Return a text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"

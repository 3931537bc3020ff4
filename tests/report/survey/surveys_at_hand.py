"""Small surveys for the tests of their report, written with DuckDB and by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from torchport.records import RAW_COLUMNS, RAW_FORMAT, SurveyRow, file_name, write_record

TENSOR = "not_jsonable"


@dataclass(frozen=True)
class Op:
    """One op of a graph; `arguments` by name, as JSON; shapes of float32 tensors."""

    op: str
    arguments: dict[str, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    direction: str = "fw"
    graph: int = 0
    flops: int | None = 0
    module_path: str = ""
    input_bytes: int | None = -1  # by default, computed from the shapes


def convolution(stride: str = "[1, 1]", shape: str = "1x3x8x8", **changes) -> Op:
    """A convolution without bias, with a 4x3x1x1 weight."""
    arguments = {
        "arg0": TENSOR, "arg1": TENSOR, "arg2": "null", "arg3": stride, "arg4": "[0, 0]", "arg5": "[1, 1]",
        "arg6": "false", "arg7": "[0, 0]", "arg8": "1",
    }  # fmt: skip
    outputs = (shape.replace("x3x", "x4x"),)
    return Op("aten.convolution.default", arguments, (shape, "4x3x1x1"), outputs, **changes)


def relu(shape: str = "1x4x8x8", **changes) -> Op:
    return Op("aten.relu.default", {"arg0": TENSOR}, (shape,), (shape,), **changes)


def write_raw(directory: Path, model: str, *ops: Op, form: str | None = RAW_FORMAT, **options) -> Path:
    """Write a raw file; `form` is the format that it claims."""
    path = directory / "raw" / options.pop("name", file_name(model).replace(".json", ".parquet"))
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = json.dumps([_row(model, node, op) for node, op in enumerate(ops)])
    kinds = json.dumps([_structure()])
    columns = ", ".join(f"op.{name}::{kind} AS {name}" for name, kind in RAW_COLUMNS.items())
    metadata = f", KV_METADATA {{format: '{form}'}}" if form else ""
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT {columns} FROM (SELECT unnest(from_json(?, ?)) AS op)) TO '{path}' "
            f"(FORMAT parquet{metadata})",
            [rows, kinds],
        )
    return path


def write_row(directory: Path, model: str, raw: Path | None, **changes) -> SurveyRow:
    values = {
        "status": "ok",
        "raw": raw.name if raw else "",
        "graphs": 1,
        "seconds": 1.5,
        "peak_bytes": 2**20,
    }
    row = SurveyRow(model, **(values | changes))
    write_record(row, directory / "rows" / file_name(model))
    return row


def write_model(directory: Path, model: str, *ops: Op, **changes) -> Path:
    """Write a model's raw file and its row."""
    raw = write_raw(directory, model, *ops)
    counts = {
        word: sum(op.direction == direction for op in ops) or None
        for direction, word in (("fw", "forward_ops"), ("bw", "backward_ops"))
    }
    write_row(directory, model, raw, **(counts | changes))
    return raw


def bytes_of(*shapes: str) -> int:
    """Return how many bytes float32 tensors have: four for each element."""
    total = 0
    for shape in shapes:
        elements = 1
        for size in shape.split("x"):
            elements *= int(size)
        total += 4 * elements
    return total


def _row(model: str, node: int, op: Op) -> dict[str, object]:
    return {
        "model": model,
        "direction": op.direction,
        "graph": op.graph,
        "node": node,
        "name": f"{op.op.split('.')[1]}_{node}" if "." in op.op else op.op,
        "op": op.op,
        "arguments": [
            {"name": name, "parameter": "stride" if name == "arg3" else "", "value": value}
            for name, value in op.arguments.items()
        ],
        "inputs": [
            {"node": None, "name": f"x{place}", "dtype": "float32", "shape": shape, "bytes": bytes_of(shape)}
            for place, shape in enumerate(op.inputs)
        ],
        "outputs": [{"dtype": "float32", "shape": shape, "bytes": bytes_of(shape)} for shape in op.outputs],
        "input_bytes": bytes_of(*op.inputs) if op.input_bytes == -1 else op.input_bytes,
        "output_bytes": bytes_of(*op.outputs),
        "flops": op.flops,
        "module_path": op.module_path,
        "source": "",
    }


def _structure() -> dict[str, object]:
    """Return the columns as DuckDB's `from_json` expects them."""
    nested = {
        "arguments": [{"name": "VARCHAR", "parameter": "VARCHAR", "value": "VARCHAR"}],
        "inputs": [
            {"node": "INTEGER", "name": "VARCHAR", "dtype": "VARCHAR", "shape": "VARCHAR", "bytes": "BIGINT"}
        ],
        "outputs": [{"dtype": "VARCHAR", "shape": "VARCHAR", "bytes": "BIGINT"}],
    }
    return {name: nested.get(name, kind) for name, kind in RAW_COLUMNS.items()}

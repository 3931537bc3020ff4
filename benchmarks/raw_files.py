"""Makes surveys of any number of models: raw files as a survey writes them, with DuckDB."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb

from torchport.records import NOT_JSONABLE, RAW_COLUMNS, RAW_FORMAT, SurveyRow, write_record

OPS = 1000  # per model
PROGRAMS = 300  # distinct ones; models share them under other names and with other FLOPs
WORKERS = 2

T = NOT_JSONABLE
PAIRS = ["[0, 0]", "[1, 1]", "[2, 2]", "[3, 3]", "[4, 4]", "[14, 14]", "[16, 16]"]
SHAPES = [
    f"[{batch}, {width}, {depth}]" for batch in (1, 8) for width in (49, 196, 197) for depth in (64, 384, 768)
]
CATALOG: dict[str, dict[str, list[str]]] = {
    "aten.convolution.default": {
        "arg0": [T], "arg1": [T], "arg2": ["null", T], "arg3": PAIRS[1:], "arg4": PAIRS[:4],
        "arg5": PAIRS[1:3], "arg6": ["false"], "arg7": ["[0, 0]"],
        "arg8": ["1", "32", "64", "96", "144", "192"],
    },
    "aten.convolution_backward.default": {
        "arg0": [T], "arg1": [T], "arg2": [T], "arg3": ["null", "[0]"], "arg4": PAIRS[1:], "arg5": PAIRS[:4],
        "arg6": PAIRS[1:3], "arg7": ["false"], "arg8": ["[0, 0]"], "arg9": ["1", "32"],
        "arg10": ["[true, true, false]", "[false, true, false]"],
    },
    "aten.view.default": {"arg0": [T], "arg1": SHAPES},
    "aten.expand.default": {"arg0": [T], "arg1": SHAPES},
    "aten.permute.default": {"arg0": [T], "arg1": ["[0, 2, 1]", "[0, 2, 3, 1]", "[0, 2, 1, 3]", "[1, 0]"]},
    "aten.addmm.default": {"arg0": [T], "arg1": [T], "arg2": [T]},
    "aten.native_layer_norm.default": {
        "arg0": [T], "arg1": ["[384]", "[768]"], "arg2": [T], "arg3": [T],
        "arg4": ["1e-05", "1e-06", "1e-12"],
    },
    "aten._to_copy.default": {"arg0": [T], "dtype": ['"torch.float32"', '"torch.bfloat16"', '"torch.int64"']},
    "aten.full.default": {
        "arg0": SHAPES, "arg1": ["0", "1", "-3.4e+38"], "dtype": ['"torch.float32"'], "device": ['"cpu"'],
        "pin_memory": ["false"],
    },
    "aten.slice.Tensor": {
        "arg0": [T], "arg1": ["1", "2", "3"], "arg2": ["0", "1", "7"], "arg3": ["9223372036854775807", "49"],
    },
    "aten.cat.default": {"arg0": [T], "arg1": ["0", "1", "-1"]},
    "aten.max_pool2d_with_indices.default": {
        "arg0": [T], "arg1": PAIRS[2:4], "arg2": PAIRS[1:3], "arg3": PAIRS[:2],
    },
}  # fmt: skip
PLAIN = """
    mm bmm relu add.Tensor mul.Tensor sub.Tensor div.Tensor gelu silu sigmoid tanh exp rsqrt neg clone t
    threshold_backward _softmax _softmax_backward_data native_batch_norm native_batch_norm_backward mean.dim
    sum.dim_IntList unsqueeze squeeze.dim select.int split.Tensor embedding embedding_dense_backward
    where.self hardtanh hardswish hardsigmoid avg_pool2d _adaptive_avg_pool2d constant_pad_nd index.Tensor
    pow.Tensor_Scalar sqrt var_mean.correction native_dropout arange.start_step gather scatter_add cumsum erf
    abs maximum""".split()


def catalog() -> list[dict[str, object]]:
    """Return the ops, each with its arguments and their possible values."""
    ops = dict(CATALOG)
    for place, name in enumerate(PLAIN):
        op = f"aten.{name}" if "." in name else f"aten.{name}.default"
        ops[op] = {f"arg{i}": [T] if i == 0 else ["0", "1", "2", "-1"] for i in range(1 + place % 3)}
    return [
        {"op": op, "arguments": [{"name": name, "choices": values} for name, values in arguments.items()]}
        for op, arguments in ops.items()
    ]


def write_survey(directory: Path, models: int) -> None:
    """Write the raw files and rows of a survey, a few milliseconds each."""
    (directory / "raw").mkdir(parents=True)
    (directory / "rows").mkdir()
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {WORKERS}")
        _make_programs(connection)
        with ThreadPoolExecutor(WORKERS) as workers:
            list(workers.map(lambda number: _write_model(connection, directory, number), range(models)))


def _make_programs(connection: duckdb.DuckDBPyConnection) -> None:
    entries = json.dumps(catalog())
    kinds = '[{"op": "VARCHAR", "arguments": [{"name": "VARCHAR", "choices": ["VARCHAR"]}]}]'
    connection.execute(
        "CREATE TABLE catalog AS SELECT unnest(from_json(?, ?), max_depth := 2)", [entries, kinds]
    )
    connection.execute(
        "CREATE TABLE numbered AS SELECT *, row_number() OVER (ORDER BY op) - 1 AS number FROM catalog"
    )
    # A few ops are common and most are rare: the square of a uniform distribution.
    connection.execute(f"""
        CREATE TABLE calls AS
        SELECT *, floor(pow(h % 10007 / 10007.0, 2) * (SELECT count(*) FROM catalog))::BIGINT AS number,
               8 << (h // 7 % 8) AS channels, 7 << (h // 11 % 5) AS side
        FROM (SELECT program, node, hash(program * {OPS} + node) // 8 AS h
              FROM range({PROGRAMS}) p(program), range({OPS}) n(node))""")
    values = {
        "model": "''",
        "direction": f"CASE WHEN node < {2 * OPS // 5} THEN 'fw' ELSE 'bw' END",
        "graph": "0",
        "name": "split_part(op, '.', 2) || '_' || node",
        "arguments": """list_transform(arguments, lambda argument, i: {
            'name': argument.name, 'parameter': '',
            'value': argument.choices[1 + (h // (13 * i) % len(argument.choices))::BIGINT]})""",
        "inputs": """[{'node': node - 1, 'name': 'x', 'dtype': 'float32',
                       'shape': '1x' || channels || 'x' || side || 'x' || side,
                       'bytes': 4 * channels * side * side},
                      {'node': NULL, 'name': 'primals_' || node, 'dtype': 'float32',
                       'shape': channels || 'x' || channels, 'bytes': 4 * channels * channels}]""",
        "outputs": """[{'dtype': 'float32', 'shape': '1x' || channels || 'x' || side || 'x' || side,
                        'bytes': 4 * channels * side * side}]""",
        "input_bytes": "4 * channels * (side * side + channels)",
        "output_bytes": "4 * channels * side * side",
        "flops": "2 * channels * channels * side * side",
        "module_path": "'features.' || (node // 40) || '.conv.' || (node % 4)",
        "source": "'site-packages/torchvision/models/model.py:' || (100 + node % 200)",
    }  # fmt: skip
    columns = ", ".join(f"({values.get(name, name)})::{kind} AS {name}" for name, kind in RAW_COLUMNS.items())
    for program in range(PROGRAMS):
        connection.execute(
            f"CREATE TABLE program_{program} AS SELECT {columns} FROM calls JOIN numbered USING (number) "
            f"WHERE program = {program} ORDER BY node"
        )


def _write_model(connection: duckdb.DuckDBPyConnection, directory: Path, number: int) -> None:
    model, name = f"bench:model_{number:05d}", f"model_{number:05d}"
    changed = f"'{model}' AS model, flops * {1 + number // PROGRAMS} AS flops"
    connection.cursor().execute(
        f"COPY (SELECT * REPLACE ({changed}) FROM program_{number % PROGRAMS}) "
        f"TO '{directory}/raw/{name}.parquet' (FORMAT parquet, KV_METADATA {{format: '{RAW_FORMAT}'}})"
    )
    forward = 2 * OPS // 5
    row = SurveyRow(
        model, "ok", forward_ops=forward, backward_ops=OPS - forward, graphs=2, raw=f"{name}.parquet",
        seconds=2.0, peak_bytes=400 << 20, settings={"backward": "true"},
    )  # fmt: skip
    write_record(row, directory / "rows" / f"{name}.json")

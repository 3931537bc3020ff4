"""The raw file of a survey: one row an op of a graph, as columns that SQL can ask about."""

from __future__ import annotations

RAW_FORMAT = "torchport.raw_ops/1"
"""The name and version of the layout; each raw file carries it in its metadata under the key `format`."""

NOT_JSONABLE = "not_jsonable"
"""Replaces a value that has no JSON form, most often a tensor."""

RAW_COLUMNS: dict[str, str] = {
    "model": "VARCHAR",
    "direction": "VARCHAR",
    "graph": "INTEGER",
    "node": "INTEGER",
    "name": "VARCHAR",
    "op": "VARCHAR",
    "arguments": "STRUCT(name VARCHAR, parameter VARCHAR, value VARCHAR)[]",
    "inputs": "STRUCT(node INTEGER, name VARCHAR, dtype VARCHAR, shape VARCHAR, bytes BIGINT)[]",
    "outputs": "STRUCT(dtype VARCHAR, shape VARCHAR, bytes BIGINT)[]",
    "input_bytes": "BIGINT",
    "output_bytes": "BIGINT",
    "flops": "BIGINT",
    "module_path": "VARCHAR",
    "source": "VARCHAR",
}
"""The columns of a raw file, in order, with their SQL types.

- `model`: the model's name as it was given, `torchvision:resnet18`.
- `direction`: `fw` or `bw`, the forward or the backward graph.
- `graph`: the number of the graph in its model and direction, from 0; a program with breaks has several.
- `node`: the op's position among the ops of its graph, from 0; `name`: its name there, `convolution_3`.
- `op`: as torch spells it, `aten.convolution.default`.
- `arguments`: all of them in the order of the call, defaults that the call left out not among them. `name` is
  `arg0`, `arg1`… for positional ones and the keyword for others; `parameter` is the schema's name for it
  (`stride`; empty if there is none); `value` is JSON, or `not_jsonable` for a tensor or what holds one (a
  list of tensors too). `null` is None. A dtype, layout, device or memory format is a JSON string
  (`"torch.float32"`), a symbolic size the string of its expression.
- `inputs`: every tensor among the arguments, those in lists too, in order: the op that made it (`node`; NULL
  for a graph input, whose `name` then says which), its dtype (`float32`), shape (`1x3x224x224`, a symbol for
  a symbolic size, empty for a scalar) and bytes (NULL if symbolic).
- `outputs`: every tensor that the op returns.
- `input_bytes`, `output_bytes`: the sums; `flops`: what `torchport analyze` counts, NULL if unknown.
- `module_path`, `source`: where the op comes from, empty if unknown.
"""

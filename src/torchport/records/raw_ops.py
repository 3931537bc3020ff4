"""The raw file of a survey: one row for each op of a graph, in columns that SQL can query."""

from __future__ import annotations

RAW_FORMAT = "torchport.raw_ops/1"
"""The name and version of the layout; each raw file carries it in its metadata under the key `format`."""

NOT_JSONABLE = "not_jsonable"
"""Stands in for a value that has no JSON form, usually a tensor."""

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
- `arguments`: the arguments in the order of the call, without defaults that the call omits. `name` is
  `arg0`, `arg1`… for positional arguments and the keyword for others; `parameter` is the schema's name for it
  (`stride`; empty if there is none); `value` is JSON, or `not_jsonable` for a tensor or a value that contains
  one, such as a list of tensors. `null` is None. A dtype, layout, device or memory format is a JSON string
  (`"torch.float32"`), a symbolic size the string of its expression.
- `inputs`: every tensor among the arguments, including those in lists, in order: the op that produced it
  (`node`; NULL for a graph input, which `name` then identifies), its dtype (`float32`), shape (`1x3x224x224`,
  a symbol for a symbolic size, empty for a scalar) and bytes (NULL if symbolic).
- `outputs`: every tensor that the op returns.
- `input_bytes`, `output_bytes`: the sums; `flops`: what `torchport analyze` counts, NULL if unknown.
- `module_path`, `source`: the module and the source line that the op comes from; empty if unknown.
"""

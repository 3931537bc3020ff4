"""Turns the ops of a graph into rows of a raw file: arguments, tensors, edges, bytes, FLOPs, origin."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from torchport.analysis import known_flops
from torchport.capture import AtenGraph, module_path, ops_of, schema_arguments, source_lines
from torchport.records import JSON, NOT_JSONABLE
from torchport.structure import tensors_within
from torchport.survey.stat.raw_file import Row
from torchport.torch_private import HigherOrderOperator, OperatorBase, OpOverload

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NAMED = (torch.dtype, torch.layout, torch.device, torch.memory_format)


def rows_of(
    model: str, graphs: Sequence[AtenGraph], forwards: Sequence[AtenGraph] | None = None
) -> Iterator[Row]:
    """Yield one row for each op of a model's graphs, with the columns of `RAW_COLUMNS`.

    Args:
        model: the model's name.
        graphs: its graphs, in the order in which they are numbered within their direction. A subgraph of an
            op such as `cond` counts as a graph of its own.
        forwards: the graphs in which a backward op's forward op is looked up; `graphs` by default.

    Example:
        >>> [row["op"] for row in rows_of("relu", capture_graphs(torch.nn.ReLU(), (torch.ones(2),)))]
        ['aten.relu.default']
    """
    numbers = {"fw": 0, "bw": 0}
    known = [graph.graph_module.graph for graph in forwards or graphs if graph.direction == "fw"]
    for graph in graphs:
        for part in graph.parts():
            number = numbers[graph.direction]
            numbers[graph.direction] += 1
            lines = source_lines([] if graph.direction == "fw" else known, part.graph)
            ops = ops_of(part)
            positions = {node: index for index, node in enumerate(ops)}
            for node in ops:
                head: Row = {"model": model, "direction": graph.direction, "graph": number}
                yield head | _row(node, positions, lines.get(node.name, ""))


def _row(node: fx.Node, positions: Mapping[fx.Node, int], line: str) -> Row:
    inputs = [_tensor(tensor) | _maker(source, positions) for source, tensor in _input_tensors(node)]
    outputs = [_tensor(tensor) for tensor in tensors_within(node.meta.get("val"))]
    input_bytes, output_bytes = _total(inputs), _total(outputs)
    symbolic = input_bytes is None or output_bytes is None
    return {
        "node": positions[node],
        "name": node.name,
        "op": op_name(node.target),
        "arguments": list(_arguments(node)),
        "inputs": inputs,
        "outputs": outputs,
        "input_bytes": input_bytes,
        "output_bytes": output_bytes,
        "flops": None if symbolic else known_flops(node),
        "module_path": module_path(node),
        "source": line,
    }


def op_name(target: object) -> str:
    """Return an op's name as torch spells it; a Python function's name includes its module.

    Example:
        >>> op_name(torch.ops.aten.add.Tensor), op_name(operator.getitem)
        ('aten.add.Tensor', 'operator.getitem')
    """
    if isinstance(target, HigherOrderOperator):
        return f"higher_order.{target.name()}"
    if isinstance(target, OperatorBase):
        return str(target)
    module = str(getattr(target, "__module__", "")).removeprefix("_")
    return f"{module}.{getattr(target, '__qualname__', target)}"


def _arguments(node: fx.Node) -> Iterator[Row]:
    names = (
        [argument.name for argument in schema_arguments(node.target)]
        if isinstance(node.target, OpOverload)
        else []
    )
    for index, value in enumerate(node.args):
        parameter = names[index] if index < len(names) else ""
        yield {"name": f"arg{index}", "parameter": parameter, "value": _json(value)}
    for name, value in node.kwargs.items():
        yield {"name": name, "parameter": name if name in names else "", "value": _json(value)}


def _json(value: object) -> str:
    try:
        return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    except _NotJsonable:
        return NOT_JSONABLE


class _NotJsonable(Exception):
    """A tensor, or another value without a JSON form."""


def _plain(value: object) -> JSON:
    if isinstance(value, fx.Node):
        value = value.meta.get("val")
    if isinstance(value, _SYMBOLS):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (complex, *_NAMED)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, slice):
        return [_plain(value.start), _plain(value.stop), _plain(value.step)]
    raise _NotJsonable


def _input_tensors(node: fx.Node) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """Yield an op's input tensors, each with the node that produced it."""
    if node.target is operator.getitem:  # selects one tensor of several
        source = node.args[0]
        assert isinstance(source, fx.Node)
        for tensor in tensors_within(node.meta.get("val")):
            yield source, tensor
        return
    for source in _nodes((node.args, node.kwargs)):
        for tensor in tensors_within(source.meta.get("val")):
            yield source, tensor


def _nodes(value: Any) -> list[fx.Node]:
    """Return the nodes among arguments, in order and with repetitions."""
    found: list[fx.Node] = []
    fx.map_arg(value, lambda node: found.append(node) or node)  # type: ignore[func-returns-value]  # append returns None
    return found


def _maker(source: fx.Node, positions: Mapping[fx.Node, int]) -> Row:
    return {"node": positions.get(source), "name": source.name}


def _tensor(tensor: torch.Tensor) -> Row:
    sizes = [str(size) for size in tensor.shape]
    known = all(isinstance(size, int) for size in tensor.shape)
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": "x".join(sizes),
        "bytes": math.prod(tensor.shape) * tensor.element_size() if known else None,
    }


def _total(tensors: Sequence[Row]) -> int | None:
    sizes = [tensor["bytes"] for tensor in tensors]
    return None if None in sizes else sum(size for size in sizes if isinstance(size, int))

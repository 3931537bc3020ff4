"""Views in a graph: finds what a node is a view of, and creates views."""

from __future__ import annotations

import operator

import torch
from torch import fx

from torchport.capture import SharedResult
from torchport.torch_private import OpOverload


def base_of(node: fx.Node) -> fx.Node | None:
    """Return the node that this one is a view of; None if it has its own memory."""
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return base_of(source)
    if not isinstance(node.target, OpOverload):
        return None
    schema = node.target._schema
    if not any(result.alias_info is not None for result in schema.returns):
        return None
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and index < len(node.args):
            source = node.args[index]
            return source if isinstance(source, fx.Node) else None
    return None


def is_view_of(node: fx.Node, whole: fx.Node) -> bool:
    """Whether a node is a view of another one, according to the graph."""
    base = base_of(node)
    while base is not None and base is not whole:
        base = base_of(base)
    return base is not None


def strided_view(graph: fx.Graph, base: fx.Node, item: SharedResult) -> fx.Node:
    """Add the ops that create a view; the base may begin anywhere in its storage."""
    strided = torch.ops.aten.as_strided.default
    if item.offset:  # a view never reaches beyond the memory of its base
        reach = sum((size - 1) * stride for size, stride in zip(item.size, item.stride, strict=True))
        flat = _add(graph, strided, base, [item.offset + reach + 1], [1])
        base = _add(graph, torch.ops.aten.slice.Tensor, flat, 0, item.offset)
    return _add(graph, strided, base, list(item.size), list(item.stride))


def _add(graph: fx.Graph, op: OpOverload, source: fx.Node, *args: object) -> fx.Node:
    made = graph.call_function(op, (source, *args))  # type: ignore[arg-type]  # numbers and lists of them
    if "val" in source.meta:
        made.meta = {**source.meta, "val": op(source.meta["val"], *args)}
    return made

"""Rewrites writes to slices as concatenations, and writes to every n-th element as copies to indices.

OpenVINO's own form of them has an index for each element. Where one write follows another, its frontend
leaves an op in the model that no device has.
"""

from __future__ import annotations

import torch
from torch import fx

from torchport.targets.openvino.rules import given

_aten = torch.ops.aten


def rewrite_slice_writes(graph_module: fx.GraphModule) -> None:
    """Replace the writes to slices of fixed sizes in a graph, in place."""
    graph = graph_module.graph
    for kind in (_aten.slice_scatter.default, _aten.select_scatter.default):
        for node in graph.find_nodes(op="call_function", target=kind):
            with graph.inserting_before(node):
                dim, indices, source = _place_of(graph, node)
                if indices.step == 1:
                    _concatenate(graph, node, dim, indices, source)
                else:
                    _copy_to_indices(graph_module, node, dim, indices, source)
            node.kwargs = {}
    graph_module.recompile()


def _place_of(graph: fx.Graph, node: fx.Node) -> tuple[int, range, fx.Node]:
    """Return which indices of which dimension a node writes, and what it writes there."""
    shape, source = node.meta["val"].shape, node.args[1]
    assert isinstance(source, fx.Node)
    if node.target is _aten.select_scatter.default:
        dim, index = (_number(given(node, place, name)) for place, name in ((2, "dim"), (3, "index")))
        dim, index = dim % len(shape), index % shape[dim]
        return dim, range(index, index + 1), _call(graph, _aten.unsqueeze.default, source, dim)
    dim, step = _number(given(node, 2, "dim", 0)) % len(shape), _number(given(node, 5, "step", 1))
    start, end = (_number(given(node, *place)) for place in ((3, "start", 0), (4, "end", shape[dim])))
    return dim, range(shape[dim])[start:end:step], source


def _concatenate(graph: fx.Graph, node: fx.Node, dim: int, indices: range, source: fx.Node) -> None:
    size = node.meta["val"].shape[dim]
    target = node.args[0]
    assert isinstance(target, fx.Node)
    before, after = (
        [_call(graph, _aten.slice.Tensor, target, dim, start, end)] if start < end else []
        for start, end in ((0, indices.start), (indices.stop, size))
    )
    node.target, node.args = _aten.cat.default, ([*before, source, *after], dim)


def _copy_to_indices(
    graph_module: fx.GraphModule, node: fx.Node, dim: int, indices: range, source: fx.Node
) -> None:
    name = f"indices_of_{node.name}"
    graph_module.register_buffer(name, torch.tensor(list(indices)))
    index = graph_module.graph.get_attr(name)
    index.meta["val"] = getattr(graph_module, name)
    node.target, node.args = _aten.index_copy.default, (node.args[0], dim, index, source)


def _call(graph: fx.Graph, op: object, source: fx.Node, *numbers: int) -> fx.Node:
    made = graph.call_function(op, (source, *numbers))  # type: ignore[arg-type]  # an ATen op
    made.meta["val"] = op(source.meta["val"], *numbers)  # type: ignore[operator]
    return made


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value

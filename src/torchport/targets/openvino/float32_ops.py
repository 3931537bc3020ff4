"""Inserts casts around half-precision ops that must be computed in float32 according to their rules."""

from __future__ import annotations

import operator

import torch
from torch import fx

from torchport.targets.openvino.ops import RULES
from torchport.verification import HALVES


def widen_ops(graph_module: fx.GraphModule) -> None:
    """Cast such ops' operands to float32 and their results back to the original dtype, in place."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        rule = RULES.get(str(node.target))
        if rule is None or not rule.wide or not any(map(_is_half, node.all_input_nodes)):
            continue
        with graph.inserting_before(node):
            for source in filter(_is_half, node.all_input_nodes):
                node.replace_input_with(source, _cast(graph, source, torch.float32))
        results = [user for user in node.users if user.target is operator.getitem] or [node]
        for result in filter(_is_half, results):
            dtype = result.meta["val"].dtype
            with graph.inserting_after(result):
                back = _cast(graph, result, dtype)
            result.replace_all_uses_with(back, lambda user, back=back: user is not back)
            result.meta["val"] = result.meta["val"].float()
    graph_module.recompile()


def _is_half(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in HALVES


def _cast(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    cast = graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": dtype})
    cast.meta["val"] = node.meta["val"].to(dtype)
    return cast

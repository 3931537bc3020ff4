"""Inserts casts around half-precision ops that must be computed in float32.

Their rules say so, or they have a number beyond the dtype's range: torch computes with the number itself,
and OpenVINO would round it to 0 or infinity.
"""

from __future__ import annotations

import math
import operator

import torch
from torch import fx

from torchport.targets.openvino.ops import RULES
from torchport.verification import HALVES

# Their numbers become tensors of the dtype; those of other ops, such as an eps, are attributes.
_WITH_NUMBERS = frozenset(
    f"aten.{name}"
    for name in (
        "add.Tensor add.Scalar sub.Tensor rsub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar "
        "addmm.default"
    ).split()
)


def widen_ops(graph_module: fx.GraphModule) -> None:
    """Cast such ops' operands to float32 and their results back to the original dtype, in place."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        rule = RULES.get(str(node.target))
        if rule is None or not any(map(_is_half, node.all_input_nodes)):
            continue
        if not rule.wide and not _has_number_out_of_range(node):
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


def _has_number_out_of_range(node: fx.Node) -> bool:
    if str(node.target) not in _WITH_NUMBERS:
        return False
    ranges = [torch.finfo(source.meta["val"].dtype) for source in filter(_is_half, node.all_input_nodes)]
    numbers = [abs(value) for value in (*node.args, *node.kwargs.values()) if isinstance(value, (int, float))]
    return any(
        0 < number < limits.tiny or limits.max < number < math.inf for number in numbers for limits in ranges
    )


def _cast(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    cast = graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": dtype})
    cast.meta["val"] = node.meta["val"].to(dtype)
    return cast

"""Constant folding: evaluates ops that depend on no input at compile time, with torch itself, so exactly.

Position ids, masks of a fixed size and relative-position buckets are all integers computed from `arange`;
folded, they are constants whose values every later stage can see.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from torchport.compiler.normalise import NormalGraph
from torchport.targets.open_sizes import has_open_sizes
from torchport.torch_private import FakeTensor, OpOverload

# Larger results are left to the device: folding an `expand` would materialize what it avoids materializing.
_LARGEST = 64 * 2**20


def fold(graph: NormalGraph) -> int:
    """Replace ops on constants by their results.

    Parameters are not folded: a device prepares weights in its own way, and folding would add another copy.

    Returns:
        How many ops were folded.
    """
    graph_module = graph.graph_module
    mutated = {node.target for node in graph.writes if node.op == "get_attr"}
    values: dict[fx.Node, object] = {}
    folded = 0
    for node in list(graph_module.graph.nodes):
        if node.op == "get_attr":
            tensor = getattr(graph_module, str(node.target), None)
            if _is_constant(tensor) and node.target not in mutated:
                values[node] = tensor
        elif node.op == "call_function" and _foldable(node, values):
            value = _evaluate(node, values)
            if value is not None:
                values[node] = value
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function" and node in values:
            folded += isinstance(node.target, OpOverload)
            if any(user not in values for user in node.users):
                _replace(graph_module, node, values[node])
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()
    return folded


def _is_constant(tensor: object) -> bool:
    return (
        isinstance(tensor, torch.Tensor)
        and not isinstance(tensor, (torch.nn.Parameter, FakeTensor))
        and not tensor.is_meta
    )


def _foldable(node: fx.Node, values: dict[fx.Node, object]) -> bool:
    if any(source not in values for source in node.all_input_nodes):
        return False
    if not isinstance(node.target, OpOverload):
        # Higher-order ops may draw random numbers: torch.utils.checkpoint wraps each random op in one.
        return node.target is operator.getitem
    if torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable:
        return False
    if node.target.namespace != "aten" or "empty" in str(node.target) or node.is_impure():
        return False
    value = node.meta.get("val")
    if has_open_sizes(value):  # the size depends on the constants' values, unknown to the ops after it
        return False
    return not isinstance(value, torch.Tensor) or value.nbytes <= _LARGEST


def _evaluate(node: fx.Node, values: dict[fx.Node, object]) -> object:
    args = fx.map_arg(node.args, values.__getitem__)  # type: ignore[arg-type]  # values, not nodes
    kwargs = dict(fx.map_arg(node.kwargs, values.__getitem__))  # type: ignore[arg-type]  # as above
    if kwargs.get("device") == torch.device("meta"):
        kwargs["device"] = "cpu"  # a model on the meta device: its positions and masks can still be computed
    assert callable(node.target)
    try:
        with torch.no_grad():
            return node.target(*args, **kwargs)
    except Exception:  # noqa: BLE001  # it will raise at run time, as it does in eager torch
        return None


def _replace(graph_module: fx.GraphModule, node: fx.Node, value: object) -> None:
    if not isinstance(value, torch.Tensor):
        return  # a tuple: its `getitem` nodes are replaced
    attribute = f"folded_{node.name}"
    graph_module.register_buffer(attribute, value.contiguous(), persistent=False)
    with graph_module.graph.inserting_before(node):
        constant = graph_module.graph.get_attr(attribute)
    constant.meta = {
        key: node.meta[key] for key in ("val", "nn_module_stack", "stack_trace") if key in node.meta
    }
    for user in list(node.users):
        user.replace_input_with(node, constant)

"""Reads and adds the tensors that a graph module holds."""

from __future__ import annotations

import torch
from torch import fx, nn

from torchport.targets.node_checks import is_random


def is_trained(graph_module: nn.Module, value: object) -> bool:
    """Whether a node reads a tensor of the graph module that requires gradients."""
    found = _attribute_of(graph_module, value)
    return isinstance(found, torch.Tensor) and found.requires_grad


def tensor_of(graph_module: nn.Module, value: object) -> torch.Tensor | None:
    """Return the tensor that a node reads from the graph module, or None if it does not."""
    found = _attribute_of(graph_module, value)
    return found.detach() if isinstance(found, torch.Tensor) else None


def _attribute_of(graph_module: nn.Module, value: object) -> object:
    if not isinstance(value, fx.Node) or value.op != "get_attr":
        return None
    found: object = graph_module
    for part in str(value.target).split("."):
        found = getattr(found, part, None)
    return found


def constant_of(graph_module: nn.Module, value: object) -> torch.Tensor | None:
    """Return a node's value if it depends only on the graph's own tensors, as a slice of a weight does."""
    return _constant(graph_module, value, {})


def _constant(
    graph_module: nn.Module, value: object, known: dict[fx.Node, torch.Tensor | None]
) -> torch.Tensor | None:
    """Evaluate a node recursively; `known` memoizes nodes, since many paths may lead to the same one."""
    if not isinstance(value, fx.Node) or value.op != "call_function" or not value.args:
        return tensor_of(graph_module, value)
    if value not in known:
        known[value] = None
        if not is_random(value) and callable(value.target):
            read: dict[fx.Node, torch.Tensor] = {}
            for node in value.all_input_nodes:
                found = _constant(graph_module, node, known)
                if found is None:
                    return None
                read[node] = found
            args, kwargs = fx.map_arg((value.args, value.kwargs), read.__getitem__)
            with torch.no_grad():
                known[value] = value.target(*args, **kwargs)
    return known[value]


def add_tensor(
    graph_module: fx.GraphModule, name: str, tensor: torch.Tensor, *, trained: bool = False
) -> fx.Node:
    """Add a tensor as a parameter, and return the node that reads it.

    A parameter, not a buffer: the compiler folds constants, but leaves parameters to the target, which has
    its own form of quantized weights.

    Args:
        graph_module: the graph.
        name: the tensor's name; underscores are appended if it is taken.
        tensor: the tensor.
        trained: whether it requires gradients.
    """
    free = name
    while hasattr(graph_module, free):
        free += "_"
    graph_module.register_parameter(free, nn.Parameter(tensor, requires_grad=trained))
    return graph_module.graph.get_attr(free)

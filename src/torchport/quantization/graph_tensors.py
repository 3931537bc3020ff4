"""The tensors that a graph holds: how they are read, and added."""

from __future__ import annotations

import torch
from torch import fx, nn


def tensor_of(graph_module: nn.Module, value: object) -> torch.Tensor | None:
    """Return the tensor that a node reads from the graph's module, if that is what it does."""
    if not isinstance(value, fx.Node) or value.op != "get_attr":
        return None
    found: object = graph_module
    for part in str(value.target).split("."):
        found = getattr(found, part, None)
    return found.detach() if isinstance(found, torch.Tensor) else None


def add_tensor(graph_module: fx.GraphModule, name: str, tensor: torch.Tensor) -> fx.Node:
    """Add a tensor as a parameter that is not trained, and return the node that reads it.

    A parameter, not a buffer: the compiler computes with constants beforehand, and leaves parameters to the
    target, which has its own form of quantized weights.
    """
    free = name
    while hasattr(graph_module, free):
        free += "_"
    graph_module.register_parameter(free, nn.Parameter(tensor, requires_grad=False))
    return graph_module.graph.get_attr(free)

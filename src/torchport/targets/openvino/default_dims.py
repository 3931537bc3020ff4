"""Writes out the dimension along which a tensor is split, where it is torch's default: OpenVINO needs it."""

from __future__ import annotations

from torch import fx

# The place of the dimension among the arguments.
_PLACES = {"aten.split.Tensor": 2, "aten.split_with_sizes.default": 2, "aten.unbind.int": 1}


def write_default_dims(graph_module: fx.GraphModule) -> None:
    """Add the dimension 0 where none is given; changes the graph."""
    for node in graph_module.graph.nodes:
        place = _PLACES.get(str(node.target))
        if place is not None and len(node.args) == place and "dim" not in node.kwargs:
            node.args = (*node.args, 0)
    graph_module.recompile()

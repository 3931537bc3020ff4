"""Removes products with zeros, as in the first step of a recurrent layer, whose initial state is zero.

Such a product equals its bias. OpenVINO cannot compile it if its weight is quantized for other steps.
"""

from __future__ import annotations

import torch
from torch import fx

_ZEROS = ("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")
_MOVES = (
    "aten.unsqueeze.default", "aten.squeeze.dim", "aten.unbind.int", "aten.select.int", "aten.transpose.int",
    "aten.slice.Tensor", "aten.expand.default", "aten.view.default", "<built-in function getitem>",
)  # fmt: skip


def remove_zero_products(graph_module: fx.GraphModule) -> None:
    """Replace each linear layer whose input is zeros by its bias."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        if str(node.target) != "aten.linear.default" or len(node.args) < 3 or not _is_zero(node.args[0]):
            continue
        with graph.inserting_before(node):
            column = graph.call_function(torch.ops.aten.slice.Tensor, (node.args[0], -1, 0, 1))
            total = graph.call_function(torch.ops.aten.add.Tensor, (column, node.args[2]))
        for made in (column, total):
            made.meta = dict(node.meta)
        node.replace_all_uses_with(total)
    graph.eliminate_dead_code()
    graph_module.recompile()


def _is_zero(value: object) -> bool:
    while isinstance(value, fx.Node) and str(value.target) in _MOVES:
        value = value.args[0]
    return isinstance(value, fx.Node) and str(value.target) in _ZEROS

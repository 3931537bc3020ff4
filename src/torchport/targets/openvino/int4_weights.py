"""Recognizes 4-bit weights packed two per byte where torch unpacks them, and keeps them as OpenVINO's u4.

In torch's ops, unpacking is `view(cat([unsqueeze(weight & 15), unsqueeze(weight >> 4)]))` and a cast to
floats. OpenVINO does not compute 8-bit integers as torch does, but its frontend recognizes a `stack` of the
two halves as such a weight: the chain is supported as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

_AND, _SHIFT = "aten.bitwise_and.Scalar", "aten.bitwise_right_shift.Tensor_Scalar"


def is_quantized_lookup(node: fx.Node) -> bool:
    """Whether a node looks up rows in an int8 weight that are only cast to float32.

    OpenVINO does not compute 8-bit integers as torch does, but it moves them unchanged.
    """
    if str(node.target) != "aten.embedding.default" or node.meta["val"].dtype is not torch.int8:
        return False
    table = node.args[0]
    is_weight = isinstance(table, fx.Node) and table.op == "get_attr"
    casts = [user.meta["val"].dtype for user in node.users if str(user.target) == "aten._to_copy.default"]
    return is_weight and casts == [torch.float32] * len(node.users)


def is_unpacking(node: fx.Node) -> bool:
    """Whether a node is part of an unpacking chain, including the cast to float32 at its end."""
    return any(node in _chain(pair) for pair in _pairs_around(node))


def stack_halves(graph_module: fx.GraphModule) -> None:
    """Rewrite an island's unpacking chains in the form that OpenVINO's frontend recognizes, in place."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        halves = _halves(node)
        if halves is None:
            continue
        with graph.inserting_before(node):
            stacked = graph.call_function(torch.ops.aten.stack.default, (list(halves), -1))
        stacked.meta = dict(node.meta)
        node.replace_all_uses_with(stacked)
        apart = node.all_input_nodes
        graph.erase_node(node)
        for part in apart:
            graph.erase_node(part)
    graph_module.recompile()


def _halves(pair: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Return the lower and upper halves of a packed weight that a `cat` node joins; None for other nodes."""
    if str(pair.target) != "aten.cat.default" or pair.meta["val"].dtype is not torch.uint8:
        return None
    last = pair.meta["val"].dim() - 1
    parts = pair.args[0]
    if pair.args[1:] not in ((-1,), (last,)) or not isinstance(parts, (list, tuple)) or len(parts) != 2:
        return None
    found = []
    for part, (op, number) in zip(parts, ((_AND, 15), (_SHIFT, 4)), strict=True):
        if not isinstance(part, fx.Node) or str(part.target) != "aten.unsqueeze.default":
            return None
        half = part.args[0]
        if part.args[1] not in (-1, last) or list(part.users) != [pair] or not isinstance(half, fx.Node):
            return None
        if str(half.target) != op or half.args[1] != number or list(half.users) != [part]:
            return None
        found.append(half)
    low, high = found
    weight = low.args[0]
    if not isinstance(weight, fx.Node) or weight.op != "get_attr" or weight is not high.args[0]:
        return None
    return (low, high) if weight.meta["val"].dtype is torch.uint8 else None


def _chain(pair: fx.Node) -> set[fx.Node]:
    """Return all nodes of the chain around a `cat`; empty if OpenVINO would not recognize it."""
    halves = _halves(pair)
    if halves is None or len(pair.users) != 1:
        return set()
    [view] = pair.users
    if str(view.target) != "aten.view.default" or len(view.users) != 1:
        return set()
    shape = pair.meta["val"].shape
    [cast] = view.users
    if (
        tuple(view.meta["val"].shape) != (*shape[:-2], 2 * shape[-2])
        or str(cast.target) != "aten._to_copy.default"
    ):
        return set()
    if cast.meta["val"].dtype is not torch.float32:
        return set()
    return {*halves, *pair.all_input_nodes, pair, view, cast}


def _pairs_around(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the nodes that could be the `cat` of a chain that contains a node."""
    ahead: list[fx.Node] = [node]
    for _ in range(3):
        yield from (each for each in ahead if str(each.target) == "aten.cat.default")
        ahead = [user for each in ahead for user in each.users]
    behind = node
    for _ in range(2):
        if not behind.args or not isinstance(behind.args[0], fx.Node):
            return
        behind = behind.args[0]
        if str(behind.target) == "aten.cat.default":
            yield behind

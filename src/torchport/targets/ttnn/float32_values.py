"""Finds the values that stay in float32 in a program in bfloat16: statistics, and values that decide.

A statistic is one number for many elements, such as the mean of a row, which elementwise ops then combine
with them. Rounding it moves all of these elements in one direction, and such errors add up where those of
the elements themselves cancel out: gradients that a norm makes zero would be several times too large. So
sums and means that become statistics are computed in float32, from products that are not rounded before, and
inputs that are statistics, such as those that a forward pass saves for the backward pass, cross in float32.
Elements minus a much smaller statistic would round to the same elements again, and the terms of a sum that
cancel would leave their rounding: sums that a statistic scales, and terms that one has scaled, are rounded
only after the next op. The library's sums, differences, products and quotients take both dtypes.

A value decides if it is truncated, or is random and compared: see `mark_deciding_values`.
"""

from __future__ import annotations

import torch
from torch import fx

from torchport.targets.node_checks import is_random
from torchport.targets.ttnn.lowering import IN_FLOAT32, packet, torch_value

MIXING = frozenset("add sub rsub mul div".split())  # the ops whose functions mix dtypes
_SUMS = frozenset("add sub rsub".split())
_REDUCTIONS = frozenset("sum mean var".split())
_TRUNCATING = frozenset("floor ceil round trunc".split())
_COMPARING = frozenset("eq ne lt le gt ge".split())
_FOLLOWED = frozenset(
    """
    add sub rsub mul div pow sqrt rsqrt reciprocal neg exp log abs clamp clamp_min clamp_max maximum minimum
    view _unsafe_view reshape unsqueeze squeeze permute transpose t expand clone alias _to_copy
    """.split()
)
_EXACT = _FOLLOWED | frozenset(  # ops that compute in float32 if their operands are in it
    "cat slice select log2 log10 log1p exp2 expm1 sigmoid tanh sin cos floor ceil round trunc where".split()
)
_FEWEST = 8  # elements for each statistic


def float32_values(graph: fx.Graph) -> frozenset[fx.Node]:
    """Return the inputs, reductions and elementwise ops of a graph whose values are in float32."""
    found = _statistics(graph)
    derived = _derived(graph, found)
    found |= {node for node in _updated(graph, derived) if node.op == "placeholder"}
    found |= {
        node for node in graph.find_nodes(op="placeholder") if _is_float32(node) and IN_FLOAT32 in node.meta
    }
    for node in reversed(graph.nodes):
        if _is_float32(node) and node.users and (is_op(node, MIXING) or _is_square(node)):
            is_sum, is_scaled = is_op(node, _SUMS), _others(node) & derived
            if all(
                user in found
                or (is_sum and _others(user, node) & derived)
                or (is_scaled and node not in derived and is_op(user, _SUMS))
                for user in node.users
            ):
                found.add(node)
    return frozenset(found)


def mark_deciding_values(graph: fx.Graph) -> None:
    """Mark the values that decide about others while no op has rounded them yet.

    Integers that become floats and then integers again, as distances become numbers of buckets, would be
    truncated to other integers if the floats were rounded to bfloat16; inputs likewise. Random numbers that
    are compared or truncated would drop other elements than they do in eager torch. `graph` is the whole
    graph: the op that decides may stay on the host.
    """
    for node in graph.nodes:
        is_cast = is_op(node, frozenset({"_to_copy"})) and _is_integer(node)
        truncates, compares = is_cast or is_op(node, _TRUNCATING), is_op(node, _COMPARING)
        if not truncates and not compares:
            continue
        for source in node.all_input_nodes:
            exact = _exact_values(source)
            if truncates or any(map(is_random, exact)):
                for each in exact:
                    each.meta[IN_FLOAT32] = True


def _exact_values(node: fx.Node) -> set[fx.Node]:
    """Return a float and what it is computed from, by elementwise ops; none if another op has rounded it."""
    found: set[fx.Node] = set()
    pending = [node] if _is_float32(node) else []
    for source in pending:
        if source in found or source.op == "get_attr" or not (_is_float32(source) or _is_integer(source)):
            continue
        found.add(source)
        if _is_float32(source) and source.op != "placeholder" and not is_random(source):
            if not is_op(source, _EXACT):
                return set()
            pending += source.all_input_nodes
    return found


def _statistics(graph: fx.Graph) -> set[fx.Node]:
    """Return the inputs and reductions that are combined with tensors of many more elements."""
    spread: dict[fx.Node, int] = {}  # the size of the largest tensor that a value is combined with
    for node in reversed(graph.nodes):
        if node.op in ("placeholder", "call_function"):
            spread[node] = max((_met(node, user, spread) for user in node.users), default=0)
    return {
        node
        for node, size in spread.items()
        if _is_float32(node)
        and (node.op == "placeholder" or is_op(node, _REDUCTIONS))
        and size >= _FEWEST * torch_value(node).numel()
    }


def _met(node: fx.Node, user: fx.Node, spread: dict[fx.Node, int]) -> int:
    """Return the size of the largest tensor that an op, or what follows it, combines a value with."""
    if not is_op(user, _FOLLOWED) or not _is_float32(user):
        return 0
    return max(torch_value(user).numel() if _others(user, node) else 0, spread[user])


def _derived(graph: fx.Graph, statistics: set[fx.Node]) -> set[fx.Node]:
    """Return the statistics, and what is computed from them and weights alone."""
    found = set(statistics)
    for node in graph.nodes:
        sources = {source for source in node.all_input_nodes if source.op != "get_attr"}
        if sources and sources <= found and is_op(node, _FOLLOWED) and _is_float32(node):
            found.add(node)
    return found


def _updated(graph: fx.Graph, derived: set[fx.Node]) -> set[fx.Node]:
    """Return the values that are combined with a statistic of their size, as running statistics are."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if _is_float32(node) and any(_updates(node, user, derived, found) for user in node.users):
            found.add(node)
    return found


def _updates(node: fx.Node, user: fx.Node, derived: set[fx.Node], updated: set[fx.Node]) -> bool:
    """Whether an op combines a value with a statistic of its size, perhaps after scaling it by a number."""
    others = _others(user, node)
    if not others:
        return is_op(user, MIXING) and user in updated
    size = torch_value(node).numel()
    return others <= derived and all(torch_value(item).numel() == size for item in others)


def _others(user: fx.Node, node: fx.Node | None = None) -> set[fx.Node]:
    """Return the tensors that one of the ops that mix dtypes combines with a node; if None, all of them."""
    return set(user.all_input_nodes) - {node} if is_op(user, MIXING) else set()


def _is_square(node: fx.Node) -> bool:
    return is_op(node, frozenset({"pow"})) and bool(node.args[1] == 2)


def is_op(node: fx.Node, packets: frozenset[str]) -> bool:
    """Whether a node calls one of torch's own ops with these names."""
    return node.op == "call_function" and str(node.target).startswith("aten.") and packet(node) in packets


def _is_float32(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype is torch.float32


def _is_integer(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32)

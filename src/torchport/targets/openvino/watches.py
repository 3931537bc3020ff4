"""Finds where an island could lose a NaN, so that those places are watched on each call.

Many of OpenVINO's kernels take NaN for a number: relu gives 0 for it, maximum the other operand, and on
ARM the softmax of nothing but -inf is uniform. The largest of nothing but -inf is the least finite number
to them. `nan_walk.py` finds the ops that read what could be NaN or such an infinity. Here values are chosen
that prove that there is none if they are finite, or small: of small inputs, sums and products do not overflow
for many layers. Each is added to a sum that the island gives besides its outputs: that is not finite just
when the caller must run with eager torch. Another sum goes over its inputs and outputs, so that nobody else
need look at each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import torch
from torch import fx

from torchport.targets.openvino.float_values import is_float
from torchport.targets.openvino.nan_walk import SMALL, Condition, Found, Island, Trouble, Watch
from torchport.targets.openvino.ops import RULES
from torchport.targets.openvino.rules import Rule
from torchport.verification import HALVES

# Its square is more than float32 holds.
_HUGE = 1e30
# What a sum, or one of squares, is multiplied by: the product is finite only if all numbers are small.
# Half precision rounds what is summed.
_OF_SUM, _OF_SQUARES = 3.4e38 / SMALL * 1.1, 3.4e38 / SMALL**2 * 1.1
# Ops that read their operands from memory: to read those once more keeps nothing from being fused.
_READERS = frozenset(
    f"aten.{name}.default"
    for name in ("convolution", "mm", "bmm", "addmm", "linear", "scaled_dot_product_attention")
)
# Of how many values before a trouble it is tried whether to watch them helps.
_TRIED = 16
# What a sum costs besides its elements, in elements; and an input, which is summed anyway.
_COST_OF_SUM, _COST_OF_INPUT = 5000, 100

Conditions = Mapping[fx.Node, Condition]


def find_watches(
    graph_module: fx.GraphModule, rules: Mapping[str, Rule] = RULES
) -> tuple[list[Watch], list[int]]:
    """Return what must be watched in an island, and which of its inputs must be finite on each call.

    An input may hold infinities if that asks for no watch but those of a softmax: masks do.

    Args:
        graph_module: the island.
        rules: what is known of each op on the engine that runs it.
    """
    island = Island(graph_module, rules)
    conditions: dict[fx.Node, Condition] = {}
    found = island.walk(conditions)
    while found.trouble is not None:
        conditions, found = _settle(island, conditions, found, found.trouble)
    inputs = [node for node in island.nodes if node.op == "placeholder"]
    # Small ones first: a mask is smaller than what it masks.
    floats = sorted((node for node in inputs if is_float(node)), key=_size)
    free = _most(floats, lambda some: island.walk(_less(conditions, some), some).trouble is None)
    conditions = _less(conditions, free)
    needless = _most(
        [node for node in floats if node in conditions],
        lambda some: island.walk(_less(conditions, some), free).trouble is None,
    )
    conditions = _less(conditions, needless)
    found = island.walk(conditions, free)
    watches = [
        Watch(node, condition, positive=found.ranges[node].low >= 0) for node, condition in conditions.items()
    ]
    returned = graph_module.graph.output_node().all_input_nodes
    watches += [Watch(node, Condition.FITS) for node in returned if _could_overflow(node, found)]
    return [*watches, *found.rows], [
        index for index, node in enumerate(inputs) if node in floats and node not in free
    ]


def _could_overflow(node: fx.Node, found: Found) -> bool:
    """Whether a result in half precision could be too large for it, of which devices make what they like."""
    if node.op == "placeholder" or not is_float(node):
        return False
    dtype = node.meta["val"].dtype
    return dtype in HALVES and found.ranges[node].largest > torch.finfo(dtype).max


def _less(conditions: Conditions, nodes: Collection[fx.Node]) -> dict[fx.Node, Condition]:
    return {node: condition for node, condition in conditions.items() if node not in nodes}


def _most(
    nodes: list[fx.Node], holds: Callable[[Collection[fx.Node]], bool], chosen: Collection[fx.Node] = ()
) -> frozenset[fx.Node]:
    """Return the chosen nodes and as many others as something still holds for, the first ones first."""
    if not nodes or holds({*chosen, *nodes}):
        return frozenset((*chosen, *nodes))
    if len(nodes) == 1:
        return frozenset(chosen)
    half = len(nodes) // 2
    return _most(nodes[half:], holds, _most(nodes[:half], holds, chosen))


def _settle(
    island: Island, conditions: dict[fx.Node, Condition], found: Found, trouble: Trouble
) -> tuple[dict[fx.Node, Condition], Found]:
    """Return the conditions with those that settle a trouble for the least cost, and what is found then."""
    best: tuple[float, dict[fx.Node, Condition], Found] | None = None
    for choice in _choices(island, conditions, found, trouble):
        tried = {**conditions, **choice}
        start = min(island.index[node] for node in choice)
        result = island.walk(tried, (), found, start)
        reached = len(island.nodes) if result.trouble is None else result.trouble.index
        gain = (reached - trouble.index) / _cost(choice, found)
        if reached > trouble.index and (best is None or gain > best[0]):
            best = gain, tried, result
    if best is not None:
        return best[1:]
    # Nothing that it reads settles it: its result must be finite.
    node = island.nodes[trouble.index]
    results = [node] if isinstance(node.meta["val"], torch.Tensor) else list(node.users)
    tried = {**conditions, **dict.fromkeys(results, Condition.FINITE)}
    return tried, island.walk(tried, (), found, trouble.index)


def _choices(
    island: Island, conditions: Conditions, found: Found, trouble: Trouble
) -> Iterator[dict[fx.Node, Condition]]:
    """Yield sets of conditions that could settle a trouble."""
    node = island.nodes[trouble.index]
    before = [
        one for one in _ancestors(island, node) if found.ranges[one].largest > SMALL and one.op != "get_attr"
    ]
    inputs = [one for one in before if one.op == "placeholder"]
    own = [one for one in before if one in node.all_input_nodes]
    if inputs:
        yield dict.fromkeys(inputs, Condition.SMALL)
    if trouble.sources:
        yield {one: conditions.get(one, Condition.FINITE) for one in trouble.sources}
    if own:
        yield dict.fromkeys(own, Condition.SMALL)
    read = [one for one in before if _is_read(one) and one not in inputs]
    for one in read[-_TRIED:]:
        yield {one: Condition.SMALL}


def _ancestors(island: Island, node: fx.Node) -> list[fx.Node]:
    """Return the single floats that a node depends on, in order."""
    seen: set[fx.Node] = set()
    waiting = list(node.all_input_nodes)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting.extend(one.all_input_nodes)
    floats = [one for one in seen if is_float(one) and isinstance(one.meta["val"], torch.Tensor)]
    return sorted(floats, key=island.index.__getitem__)


def _is_read(node: fx.Node) -> bool:
    return any(str(user.target) in _READERS for user in node.users)


def _size(node: fx.Node) -> int:
    return int(node.meta["val"].numel())


def _cost(choice: Conditions, found: Found) -> float:
    """Return what it costs to watch values, in elements that are summed."""
    total = 0
    for node, condition in choice.items():
        if node.op == "placeholder":
            total += _COST_OF_INPUT
        else:
            squares = condition is Condition.SMALL and found.ranges[node].low < 0
            times = 1 + squares + 2 * (not _is_read(node))
            total += _COST_OF_SUM + times * _size(node)
    return total


def add_sums(graph_module: fx.GraphModule, watches: Collection[Watch]) -> tuple[fx.GraphModule, list[str]]:
    """Return a copy of an island that gives sums as well, after its outputs, and the names of these sums.

    `crossing` is the sum of all floats that go in or come out, `inside` that of what is watched; either is
    missing if there is nothing to sum. A sum is not finite if one of the values is not.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    returned = graph.graph_copy(graph_module.graph, copies)
    assert isinstance(returned, tuple)
    inputs = [copies[node] for node in graph_module.graph.nodes if node.op == "placeholder"]
    inside = [_watched(graph, copies[watch.node], watch) for watch in watches]
    # Those that are found small are finite.
    small = {copies[watch.node] for watch in watches if watch.condition is Condition.SMALL}
    crossing = [
        _summed(graph, node)
        for node in dict.fromkeys([*inputs, *returned])
        if is_float(node) and node not in small
    ]
    sums = {"crossing": _added(graph, crossing), "inside": _added(graph, inside)}
    found = {name: total for name, total in sums.items() if total is not None}
    graph.output((*returned, *found.values()))
    return fx.GraphModule(graph_module, graph), list(found)


def _watched(graph: fx.Graph, value: fx.Node, watch: Watch) -> fx.Node:
    """Return a number that is not finite if a value does not meet its condition."""
    multiply = torch.ops.aten.mul.Tensor
    if watch.condition is Condition.FINITE:
        return _summed(graph, value)
    if watch.condition is Condition.NOT_PLUS_INF:
        return _summed(graph, _call(graph, torch.ops.aten.clamp.default, value, 0.0))
    if watch.condition is Condition.SMALL:
        total = _summed(graph, value if watch.positive else _call(graph, multiply, value, value))
        return _call(graph, multiply, total, _OF_SUM if watch.positive else _OF_SQUARES)
    if value.meta["val"].dtype is torch.bool:
        numbers = _call(graph, torch.ops.aten._to_copy.default, value, dtype=torch.float32)
        largest = _call(graph, torch.ops.aten.amax.default, numbers, list(watch.dims or ()))
        return _summed(graph, _call(graph, torch.ops.aten.reciprocal.default, largest))
    value = _as_float32(graph, value)
    if watch.condition is Condition.FITS:
        value = _call(graph, torch.ops.aten.abs.default, value)
        largest = _call(graph, torch.ops.aten.amax.default, value, list(range(value.meta["val"].dim())))
        return _call(graph, multiply, largest, _of_largest(watch.node.meta["val"].dtype))
    # The largest of a row, bounded first: kernels differ in what the maximum of nothing but -inf is.
    value = _call(graph, torch.ops.aten.clamp.default, value, -_HUGE, _HUGE)
    if value.meta["val"].dim():
        value = _call(graph, torch.ops.aten.amax.default, value, list(watch.dims or ()))
    return _summed(graph, _call(graph, multiply, value, _HUGE))


def _summed(graph: fx.Graph, value: fx.Node) -> fx.Node:
    return _as_float32(graph, _call(graph, torch.ops.aten.sum.default, value))


def _as_float32(graph: fx.Graph, value: fx.Node) -> fx.Node:
    if value.meta["val"].dtype is torch.float32:
        return value
    return _call(graph, torch.ops.aten._to_copy.default, value, dtype=torch.float32)


def _of_largest(dtype: torch.dtype) -> float:
    """Return a factor that makes a number infinite just if a dtype would round it to infinity."""
    information = torch.finfo(dtype)
    limit = information.max * (2 - information.eps / 2) / (2 - information.eps)
    return float(torch.finfo(torch.float32).max) / limit * (1 + 1e-5)


def _added(graph: fx.Graph, numbers: list[fx.Node]) -> fx.Node | None:
    total = numbers[0] if numbers else None
    for number in numbers[1:]:
        assert total is not None
        total = _call(graph, torch.ops.aten.add.Tensor, total, number)
    return total


def _call(graph: fx.Graph, op: Callable[..., torch.Tensor], *args: object, **kwargs: object) -> fx.Node:
    node = graph.call_function(op, args, kwargs)  # type: ignore[arg-type]  # nodes and numbers
    node.meta["val"] = op(*[arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in args], **kwargs)
    return node

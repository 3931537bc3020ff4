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

from torchport.targets.open_sizes import has_open_sizes
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
# From how many values on they are looked at and summed together, and how many are summed at most: they are in
# memory until then.
_MANY, _MOST_TOGETHER = 8, 16
# In elements: from here on to read them costs more than to begin a sum does.
_LARGE = 1 << 16
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
    inputs = island.inputs
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


def _most(nodes: list[fx.Node], holds: Callable[[Collection[fx.Node]], bool]) -> frozenset[fx.Node]:
    """Return as many nodes as something holds for, the first ones first.

    Of many that are alike, as the caches of all layers are, the first speaks for the others.
    """
    if not nodes or holds(nodes):
        return frozenset(nodes)
    alike: dict[object, list[fx.Node]] = {}
    for node in nodes:
        value = node.meta["val"]
        alike.setdefault((tuple(map(str, value.shape)), value.dtype), []).append(node)
    chosen: frozenset[fx.Node] = frozenset()
    for some in alike.values():
        if len(some) < _MANY or holds({*chosen, some[0]}):
            chosen = _most_by_halves(some, holds, chosen)
    return chosen


def _most_by_halves(
    nodes: list[fx.Node], holds: Callable[[Collection[fx.Node]], bool], chosen: frozenset[fx.Node]
) -> frozenset[fx.Node]:
    """Return the chosen nodes and as many others as something still holds for."""
    if holds({*chosen, *nodes}):
        return frozenset((*chosen, *nodes))
    if len(nodes) == 1:
        return chosen
    half = len(nodes) // 2
    return _most_by_halves(nodes[half:], holds, _most_by_halves(nodes[:half], holds, chosen))


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
    if inputs:  # the others soon come to it: a cache for each layer
        yield dict.fromkeys([one for one in island.inputs if is_float(one)], Condition.SMALL)
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


def _is_large(node: fx.Node) -> bool:
    count = node.meta["val"].numel()
    return isinstance(count, int) and count > _LARGE


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
    inside = _Total(graph)
    for watch in watches:
        _watch(inside, copies[watch.node], watch)
    # Those that are found small are finite.
    small = {copies[watch.node] for watch in watches if watch.condition is Condition.SMALL}
    crossing = _Total(graph)
    for node in dict.fromkeys([*inputs, *returned]):
        if is_float(node) and node not in small:
            crossing.add(node)
    sums = {"crossing": crossing.number(), "inside": inside.number()}
    found = {name: total for name, total in sums.items() if total is not None}
    graph.output((*returned, *found.values()))
    return fx.GraphModule(graph_module, graph), list(found)


class _Total:
    """A number that is not finite if one of the values that were added to it is not.

    Few values are summed one by one. Of many, as a language model's step has, small ones are joined, and
    inputs of one shape added to each other: to begin a sum for each would cost more than reading them does.
    Results are not added to each other: OpenVINO merges such an op with those that made them, and crashes
    where one of them made the other.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self._alike: dict[tuple[float, object], list[fx.Node]] = {}

    def add(self, value: fx.Node, factor: float = 1.0, *, source: fx.Node | None = None) -> None:
        """Add all elements of a value, times a factor.

        Args:
            value: the value.
            factor: the factor.
            source: what it was computed from, for this alone; itself if that is left out.
        """
        if (source or value).op == "placeholder":
            kind: object = tuple(map(str, value.meta["val"].shape))
        else:
            kind = value if _is_large(value) else "small"
        self._alike.setdefault((factor, kind), []).append(value)

    def number(self) -> fx.Node | None:
        """Return the number; None if nothing was added."""
        sums = []
        for (factor, kind), values in self._alike.items():
            for value in self._merged(values, isinstance(kind, tuple)):
                number = self.float32(self.call(torch.ops.aten.sum.default, value))
                sums.append(self.call(torch.ops.aten.mul.Tensor, number, factor) if factor != 1 else number)
        return self._added(sums) if sums else None

    def _merged(self, values: list[fx.Node], are_inputs: bool) -> list[fx.Node]:
        """Return fewer values, of which the same holds."""
        if len(values) < _MANY:
            return values
        parts = [values[start : start + _MOST_TOGETHER] for start in range(0, len(values), _MOST_TOGETHER)]
        return [self._added(part) if are_inputs else self._joined(part) for part in parts]

    def call(self, op: Callable[..., torch.Tensor], *args: object, **kwargs: object) -> fx.Node:
        """Add an op to the graph."""
        node = self.graph.call_function(op, args, kwargs)  # type: ignore[arg-type]  # nodes and numbers
        values = fx.map_arg(args, lambda arg: arg.meta["val"])  # type: ignore[type-var]  # as above
        node.meta["val"] = op(*values, **kwargs)
        return node

    def float32(self, value: fx.Node) -> fx.Node:
        """Return a value in single precision."""
        if value.meta["val"].dtype is torch.float32:
            return value
        return self.call(torch.ops.aten._to_copy.default, value, dtype=torch.float32)

    def _joined(self, values: list[fx.Node]) -> fx.Node:
        return self.call(torch.ops.aten.cat.default, [self._flat(self.float32(value)) for value in values])

    def _flat(self, value: fx.Node) -> fx.Node:
        """Return a value as one row. OpenVINO knows no strides, and torch's exporter of ONNX does."""
        known = value.meta["val"]
        if not has_open_sizes(known) and not known.is_contiguous():
            value = self.call(torch.ops.aten.clone.default, value, memory_format=torch.contiguous_format)
        node = self.graph.call_function(torch.ops.aten.view.default, (value, [-1]))
        node.meta["val"] = known.reshape(-1)
        return node

    def _added(self, values: list[fx.Node]) -> fx.Node:
        total = values[0]
        for value in values[1:]:
            total = self.call(torch.ops.aten.add.Tensor, self.float32(total), self.float32(value))
        return total


def _watch(total: _Total, value: fx.Node, watch: Watch) -> None:
    """Add something that is not finite if a value does not meet its condition."""
    call, aten = total.call, torch.ops.aten
    if watch.condition is Condition.FINITE:
        total.add(value)
    elif watch.condition is Condition.NOT_PLUS_INF:
        total.add(call(aten.clamp.default, value, 0.0))
    elif watch.condition is Condition.SMALL and watch.positive:
        total.add(value, _OF_SUM)
    elif watch.condition is Condition.SMALL:
        total.add(call(aten.mul.Tensor, value, value), _OF_SQUARES, source=value)
    elif value.meta["val"].dtype is torch.bool:
        largest = call(aten.amax.default, total.float32(value), list(watch.dims or ()))
        total.add(call(aten.reciprocal.default, largest))
    elif watch.condition is Condition.FITS:
        sizes = call(aten.abs.default, total.float32(value))
        largest = call(aten.amax.default, sizes, list(range(sizes.meta["val"].dim())))
        total.add(largest, _of_largest(watch.node.meta["val"].dtype))
    else:
        # The largest of a row, bounded first: kernels differ in what the maximum of nothing but -inf is.
        bounded = call(aten.clamp.default, total.float32(value), -_HUGE, _HUGE)
        if bounded.meta["val"].dim():
            bounded = call(aten.amax.default, bounded, list(watch.dims or ()))
        total.add(call(aten.mul.Tensor, bounded, _HUGE))


def _of_largest(dtype: torch.dtype) -> float:
    """Return a factor that makes a number infinite just if a dtype would round it to infinity."""
    information = torch.finfo(dtype)
    limit = information.max * (2 - information.eps / 2) / (2 - information.eps)
    return float(torch.finfo(torch.float32).max) / limit * (1 + 1e-5)

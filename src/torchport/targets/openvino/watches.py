"""Chooses the values of an island that must be watched on each call, so that no NaN is lost.

Many of OpenVINO's kernels do not propagate NaN: relu gives 0 for it, maximum the other operand, and on ARM
the softmax of nothing but -inf is uniform. The maximum of nothing but -inf is the lowest finite number.
`nan_walk.py` finds the ops that could read NaN or such an infinity. Here values are chosen that, if they are
finite or small, prove that none can: with small inputs, sums and products do not overflow for many layers.
These values are added to a sum that the island returns besides its outputs. If it is not finite, the caller
must run the call with eager torch. Another sum covers the inputs and outputs, so that no other check need
read all of them.
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

# Its square overflows float32.
_HUGE = 1e30
# Factors of a sum and of a sum of squares: the product is finite only if all values are small. The margin is
# for half precision, which rounds the summands.
_OF_SUM, _OF_SQUARES = 3.4e38 / SMALL * 1.1, 3.4e38 / SMALL**2 * 1.1
# Ops that read their operands from memory: reading those once more prevents no fusion.
_READERS = frozenset(
    f"aten.{name}.default"
    for name in ("convolution", "mm", "bmm", "addmm", "linear", "scaled_dot_product_attention")
)
# The number of values from which they are tried and summed as a group, and the most that are summed together:
# they stay in memory until then.
_MANY, _MOST_TOGETHER = 8, 16
# In elements. Above this, reading a value costs more than starting a sum.
_LARGE = 1 << 16
# How many of the values before a trouble are tried as watches.
_TRIED = 16
# In elements: the fixed cost of a sum, and the cost of watching an input, which is summed anyway.
_COST_OF_SUM, _COST_OF_INPUT = 5000, 100

Conditions = Mapping[fx.Node, Condition]


def find_watches(
    graph_module: fx.GraphModule, rules: Mapping[str, Rule] = RULES
) -> tuple[list[Watch], list[int]]:
    """Return what must be watched in an island, and the indices of inputs that must be finite on each call.

    An input may hold infinities, as masks do, if that requires no watches other than a softmax's rows.

    Args:
        graph_module: the island.
        rules: the rules of the engine that runs it.
    """
    island = Island(graph_module, rules)
    conditions: dict[fx.Node, Condition] = {}
    found = island.walk(conditions)
    while found.trouble is not None:
        conditions, found = _settle(island, conditions, found, found.trouble)
    inputs = island.inputs
    # Smallest first: a mask is smaller than what it masks.
    floats = sorted((node for node in inputs if is_float(node)), key=_size)
    free = _largest_subset(floats, lambda some: island.walk(_without(conditions, some), some).trouble is None)
    conditions = _without(conditions, free)
    needless = _largest_subset(
        [node for node in floats if node in conditions],
        lambda some: island.walk(_without(conditions, some), free).trouble is None,
    )
    conditions = _without(conditions, needless)
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
    """Whether a half-precision result could overflow its dtype, which devices handle differently."""
    if node.op == "placeholder" or not is_float(node):
        return False
    dtype = node.meta["val"].dtype
    return dtype in HALVES and found.ranges[node].largest > torch.finfo(dtype).max


def _without(conditions: Conditions, nodes: Collection[fx.Node]) -> dict[fx.Node, Condition]:
    return {node: condition for node, condition in conditions.items() if node not in nodes}


def _largest_subset(nodes: list[fx.Node], holds: Callable[[Collection[fx.Node]], bool]) -> frozenset[fx.Node]:
    """Return a largest subset of nodes for which a predicate holds, preferring earlier nodes.

    For groups of many similar nodes, such as the KV caches of all layers, the group is dropped if the
    predicate fails for its first node.
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
            chosen = _largest_by_bisection(some, holds, chosen)
    return chosen


def _largest_by_bisection(
    nodes: list[fx.Node], holds: Callable[[Collection[fx.Node]], bool], chosen: frozenset[fx.Node]
) -> frozenset[fx.Node]:
    """Return the chosen nodes and as many others as the predicate still holds for, by bisection."""
    if holds({*chosen, *nodes}):
        return frozenset((*chosen, *nodes))
    if len(nodes) == 1:
        return chosen
    half = len(nodes) // 2
    return _largest_by_bisection(nodes[half:], holds, _largest_by_bisection(nodes[:half], holds, chosen))


def _settle(
    island: Island, conditions: dict[fx.Node, Condition], found: Found, trouble: Trouble
) -> tuple[dict[fx.Node, Condition], Found]:
    """Add the conditions that get past a trouble at the least cost; return all of them and the new walk."""
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
    # No condition on earlier values settles it: its result must be finite.
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
    if inputs:  # all inputs, as the other ones soon need it as well: each layer has a cache
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
    """Return the float tensors that a node depends on, in graph order; ops with several results excluded."""
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
    """Return the cost of watching values, in elements summed."""
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
    """Return a copy of an island that also returns sums, after its outputs, and the names of these sums.

    `crossing` is the sum of all float inputs and outputs, `inside` that of the watched values; either is
    missing if there is nothing to sum. A sum is not finite if one of its values is not.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    returned = graph.graph_copy(graph_module.graph, copies)
    assert isinstance(returned, tuple)
    inputs = [copies[node] for node in graph_module.graph.nodes if node.op == "placeholder"]
    inside = _Total(graph)
    for watch in watches:
        _watch(inside, copies[watch.node], watch)
    # Values watched for being small are finite, too.
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
    """A total that is not finite if one of the values added to it is not.

    A few values are summed one by one. Of many, as in a language model's step, small ones are concatenated,
    and inputs of one shape are added elementwise: starting a sum for each would cost more than reading them.
    Computed values are not added elementwise: OpenVINO fuses such an addition with the ops that compute them,
    and crashes if one of them is computed from the other.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self._alike: dict[tuple[float, object], list[fx.Node]] = {}

    def add(self, value: fx.Node, factor: float = 1.0, *, source: fx.Node | None = None) -> None:
        """Add all elements of a value, times a factor.

        Args:
            value: the value.
            factor: the factor.
            source: the value that it was computed from just for this total; defaults to the value itself.
        """
        if (source or value).op == "placeholder":
            kind: object = tuple(map(str, value.meta["val"].shape))
        else:
            kind = value if _is_large(value) else "small"
        self._alike.setdefault((factor, kind), []).append(value)

    def number(self) -> fx.Node | None:
        """Return the node of the total; None if nothing was added."""
        sums = []
        for (factor, kind), values in self._alike.items():
            for value in self._merged(values, isinstance(kind, tuple)):
                number = self.float32(self.call(torch.ops.aten.sum.default, value))
                sums.append(self.call(torch.ops.aten.mul.Tensor, number, factor) if factor != 1 else number)
        return self._added(sums) if sums else None

    def _merged(self, values: list[fx.Node], are_inputs: bool) -> list[fx.Node]:
        """Return fewer values with the same sum."""
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
        """Return a value cast to float32."""
        if value.meta["val"].dtype is torch.float32:
            return value
        return self.call(torch.ops.aten._to_copy.default, value, dtype=torch.float32)

    def _joined(self, values: list[fx.Node]) -> fx.Node:
        return self.call(torch.ops.aten.cat.default, [self._flat(self.float32(value)) for value in values])

    def _flat(self, value: fx.Node) -> fx.Node:
        """Return a value flattened. OpenVINO ignores strides; torch's ONNX exporter respects them."""
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
    """Add a term that is not finite if a value does not meet its condition."""
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
        # The maximum of each row, clamped first: kernels differ in the maximum of nothing but -inf.
        bounded = call(aten.clamp.default, total.float32(value), -_HUGE, _HUGE)
        if bounded.meta["val"].dim():
            bounded = call(aten.amax.default, bounded, list(watch.dims or ()))
        total.add(call(aten.mul.Tensor, bounded, _HUGE))


def _of_largest(dtype: torch.dtype) -> float:
    """Return a factor that makes a float32 value infinite only if the dtype would round it to infinity."""
    information = torch.finfo(dtype)
    limit = information.max * (2 - information.eps / 2) / (2 - information.eps)
    return float(torch.finfo(torch.float32).max) / limit * (1 + 1e-5)

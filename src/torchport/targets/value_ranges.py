"""Proves that integers fit: devices compute 64-bit integers in fewer bits, and index without bounds checks.

torch would return the 64-bit result, or raise for an index that is out of bounds; a device would return a
wrong number. So every integer in the graph gets bounds, computed by `integer_bounds.py`. Integers from
outside are assumed to lie within bounds, and each call checks that assumption.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import fx

from torchport.targets.guarded_integers import of_truncated
from torchport.targets.integer_bounds import (
    INTEGERS,
    RANGE_KEY,
    UNKNOWN,
    Bounds,
    bounds_of,
    is_integer,
    of_copied,
    of_first,
)
from torchport.torch_private import FakeTensor

# The assumed bounds of integers from outside. Ids, positions, masks and lengths are far smaller; the headroom
# up to what devices compute exactly is for the arithmetic that models do on them.
ASSUMED: Bounds = (-(2**22), 2**22)
_NARROWER = (2**16, 2**12, 2**8)  # limits assumed instead if results could grow too large
_ASSUMED_KEY = "torchport_range_is_assumed"  # and checked on each call, rather than proved
_NO_VALUES = "torchport_no_values"
_SIGNS = {"aten.add.Tensor": 1, "aten.add.Scalar": 1, "aten.sub.Tensor": -1, "aten.sub.Scalar": -1}


def annotate(
    graph_module: fx.GraphModule, is_outside: Callable[[fx.Node], bool], exact: Bounds = UNKNOWN
) -> None:
    """Annotate every integer node with its bounds.

    Args:
        graph_module: the whole graph; its weights are `get_attr` nodes.
        is_outside: whether a node's value certainly comes from outside the device.
        exact: the range of integers that the device computes exactly. If integers could grow beyond it,
            narrower bounds are assumed for the inputs that they are computed from.
    """
    nodes = list(graph_module.graph.nodes)
    without_values = {node for node in nodes if _has_no_values(graph_module, node)}
    wanted = _wanted(nodes, is_outside, functools.partial(_through_views, graph_module)) | _wanted(
        nodes, without_values.__contains__, _through_lookups
    )
    assumed = {
        node: wanted.get(node, ASSUMED)
        for node in nodes
        if is_integer(node) and (node in without_values or is_outside(node))
    }
    for node in assumed:
        node.meta[_ASSUMED_KEY] = True
        if node in without_values:
            node.meta[_NO_VALUES] = True
    _bound(graph_module, nodes, assumed)
    if exact != UNKNOWN:
        _narrow(graph_module, nodes, assumed, wanted.keys() | without_values, exact)


def _bound(graph_module: fx.GraphModule, nodes: list[fx.Node], assumed: Mapping[fx.Node, Bounds]) -> None:
    for node in nodes:
        if is_integer(node):
            node.meta[RANGE_KEY] = assumed[node] if node in assumed else _computed(graph_module, node)


def _narrow(
    graph_module: fx.GraphModule,
    nodes: list[fx.Node],
    assumed: dict[fx.Node, Bounds],
    settled: Collection[fx.Node],
    exact: Bounds,
) -> None:
    """Assume narrower bounds for integers that could grow too large, such as masks that are summed."""
    for most in _NARROWER:
        origins = _origins_of_too_large(nodes, assumed, exact) - set(settled)
        if not origins:
            return
        assumed |= dict.fromkeys(origins, (-most, most))
        _bound(graph_module, nodes, assumed)
    in_vain = _origins_of_too_large(nodes, assumed, exact)
    if in_vain:
        _bound(graph_module, nodes, assumed | {node: ASSUMED for node in in_vain if node not in settled})


def _origins_of_too_large(
    nodes: list[fx.Node], assumed: Mapping[fx.Node, Bounds], exact: Bounds
) -> set[fx.Node]:
    """Return the assumed integers that some too large integer is computed from, through integer ops only."""
    origins: dict[fx.Node, set[fx.Node]] = {}
    found: set[fx.Node] = set()
    for node in nodes:
        if not is_integer(node):
            continue
        sources = [source for source in node.all_input_nodes if is_integer(source)]
        if node in assumed:
            origins[node] = {node}
        else:
            origins[node] = set().union(*[origins[source] for source in sources])
        if not fits(bounds_of(node), exact) and all(fits(bounds_of(each), exact) for each in sources):
            found |= origins[node]
    return found


def merge_ranges(graph_module: fx.GraphModule, copies: Sequence[Mapping[fx.Node, fx.Node]]) -> None:
    """Annotate every integer node of a graph with the merged bounds of its copies for several sizes.

    Proved bounds hold for one copy each, so their union holds for all; assumed bounds must satisfy every
    copy, so they are intersected.
    """
    for node in graph_module.graph.nodes:
        metas = [some[node].meta for some in copies if node in some]
        if not metas or not all(RANGE_KEY in meta for meta in metas):
            continue
        lows, highs = zip(*[meta[RANGE_KEY] for meta in metas], strict=True)
        if any(_ASSUMED_KEY in meta for meta in metas):
            node.meta[RANGE_KEY] = (max(lows), min(highs))
        else:
            node.meta[RANGE_KEY] = (min(lows), max(highs))


def fits(bounds: Bounds, limits: Bounds) -> bool:
    """Whether bounds lie within limits."""
    return limits[0] <= bounds[0] and bounds[1] <= limits[1]


def input_ranges(graph_module: fx.GraphModule) -> dict[int, Bounds]:
    """Return the bounds to check each integer input of an island against, on each call."""
    found: dict[int, Bounds] = {}
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    for index, node in enumerate(placeholders):
        if is_integer(node):
            found[index] = node.meta.get(RANGE_KEY, ASSUMED)
    return found


def index_limits(node: fx.Node) -> list[tuple[fx.Node, Bounds]]:
    """Return, for an op that indexes, its index tensors with the bounds that they must stay within."""
    known = INTEGERS.get(str(node.target))
    return [] if known is None or known.indexes is None or _is_open(node) else known.indexes(node)


def condition_of(node: fx.Node) -> str:
    """Return the condition on weights without values for an op's indices to be in bounds; empty if none."""
    for index, (low, high) in index_limits(node):
        origin, _ = _through_lookups(index)
        if origin.meta.get(_NO_VALUES):
            return f"its indices must be within {low} … {high}, and {origin} has no values here"
    return ""


def _has_no_values(graph_module: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node is a fake or meta weight: such a model can be explained, but not built."""
    tensor = getattr(graph_module, str(node.target), None) if node.op == "get_attr" else None
    return isinstance(tensor, torch.Tensor) and (isinstance(tensor, FakeTensor) or tensor.is_meta)


def _wanted(
    nodes: list[fx.Node],
    is_assumed: Callable[[fx.Node], bool],
    origin_of: Callable[[fx.Node], tuple[fx.Node, Bounds]],
) -> dict[fx.Node, Bounds]:
    """Return the bounds of assumed integers that are used as indices, narrowed to the limits of those ops."""
    wanted: dict[fx.Node, Bounds] = {}
    for node in nodes:
        for index, (low, high) in index_limits(node):
            origin, (least, most) = origin_of(index)
            if is_assumed(origin) and is_integer(origin) and low - least <= high - most:
                lower, upper = wanted.get(origin, ASSUMED)
                wanted[origin] = (max(low - least, lower), min(high - most, upper))
    return wanted


def _through_views(graph_module: fx.GraphModule, node: fx.Node) -> tuple[fx.Node, Bounds]:
    """Return the node that an index is a view of, and the bounds of constants added on the way."""
    least = most = 0
    while node.op == "call_function":
        known = INTEGERS.get(str(node.target))
        source: object = node.args[0] if node.args else None
        more = (0, 0)
        if known is None or not known.is_view:
            source, more = _added(graph_module, node)
        if not isinstance(source, fx.Node) or not is_integer(source):
            break
        node, least, most = source, least + more[0], most + more[1]
    return node, (least, most)


def _added(graph_module: fx.GraphModule, node: fx.Node) -> tuple[object, Bounds]:
    """Return the operand that an op adds a constant to, as in position offsets, and the constant's bounds."""
    sign = _SIGNS.get(str(node.target))
    if sign is None or len(node.args) != 2 or node.kwargs:
        return None, (0, 0)
    source, constant = node.args
    if sign == 1 and isinstance(source, fx.Node) and source.op == "get_attr":
        source, constant = constant, source
    if isinstance(constant, fx.Node):
        if constant.op != "get_attr" or not is_integer(constant) or _has_no_values(graph_module, constant):
            return None, (0, 0)
        least, most = _of_tensor(graph_module, constant)
    elif type(constant) is int:
        least = most = constant
    else:
        return None, (0, 0)
    return source, (least, most) if sign == 1 else (-most, -least)


def _through_lookups(node: fx.Node) -> tuple[fx.Node, Bounds]:
    """Return the node whose elements an index is selected from; nothing is added, so the bounds are 0."""
    while node.op == "call_function":
        known = INTEGERS.get(str(node.target))
        source = node.args[0] if node.args else None
        if known is None or known.bounds not in (of_first, of_copied) or not isinstance(source, fx.Node):
            break
        node = source
    return node, (0, 0)


def _computed(graph_module: fx.GraphModule, node: fx.Node) -> Bounds:
    if node.op == "get_attr":
        return _of_tensor(graph_module, node)
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    known = INTEGERS.get(str(node.target)) if node.op == "call_function" else None
    if known is None or _is_open(node):
        return UNKNOWN
    found = known.bounds(node)
    return of_truncated(node) if known.bounds is of_copied and found == UNKNOWN else found


def _of_tensor(graph_module: fx.GraphModule, node: fx.Node) -> Bounds:
    assert isinstance(node.target, str)
    tensor = getattr(graph_module, node.target)
    if tensor.numel() == 0:
        return 0, 0
    least, most = torch.aminmax(tensor)
    return int(least), int(most)


def _is_open(node: fx.Node) -> bool:
    """Whether a size that the node computes with is known only at run time."""
    values = [item.meta.get("val") for item in (*node.all_input_nodes, node)]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return any(not isinstance(size, int) for tensor in tensors for size in tensor.shape)

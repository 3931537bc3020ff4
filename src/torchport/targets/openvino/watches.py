"""Finds where an island could lose a NaN, so that those places are watched on each call.

Many of OpenVINO's kernels take NaN for a number: relu gives 0 for it, maximum the other operand, and on
ARM the softmax of nothing but -inf is uniform. The largest of nothing but -inf is the least finite number
to them. Where such an op reads a value that could be NaN or such an infinity, it is added to a sum that the
island gives besides its outputs: that is not finite just when the caller must run with eager torch. Another
sum goes over its inputs and outputs, so that nobody else need look at each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import torch
from torch import fx

from torchport.targets.openvino.float_ranges import (
    ANYTHING_BUT_NAN,
    FINITE,
    Range,
    is_float,
    op_name,
    op_names,
    range_of_result,
    range_of_tensor,
)

# Its square is more than float32 holds.
_HUGE = 1e30


@dataclass(frozen=True, slots=True)
class Watch:
    """A value that must be looked at on each call.

    Args:
        node: the value.
        dims: if it is the input of a softmax or a maximum, along which dimensions: each row must have a
            finite maximum.
    """

    node: fx.Node
    dims: tuple[int, ...] | None = None


def find_watches(graph_module: fx.GraphModule) -> tuple[list[Watch], list[int]]:
    """Return what must be watched in an island, and which of its inputs must be finite on each call.

    An input may hold infinities if that asks for no watch but those of a softmax: masks do.
    """
    inputs = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    floats = [index for index, node in enumerate(inputs) if is_float(node)]
    watches = _watches(graph_module, ())
    least = set(watches)
    free: list[int] = []
    # Small ones first: a mask is smaller than what it masks.
    for index in sorted(floats, key=lambda index: inputs[index].meta["val"].numel()):
        wider = _watches(graph_module, {inputs[other] for other in (*free, index)})
        if {watch for watch in wider if watch.dims is None} <= least:
            watches = wider
            free.append(index)
    return watches, [index for index in floats if index not in free]


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
    crossing = [_summed(graph, node) for node in dict.fromkeys([*inputs, *returned]) if is_float(node)]
    inside = [_watched(graph, copies[watch.node], watch.dims) for watch in watches]
    sums = {"crossing": _added(graph, crossing), "inside": _added(graph, inside)}
    found = {name: total for name, total in sums.items() if total is not None}
    graph.output((*returned, *found.values()))
    return fx.GraphModule(graph_module, graph), list(found)


def _watched(graph: fx.Graph, value: fx.Node, dims: tuple[int, ...] | None) -> fx.Node:
    """Return a number that is not finite if a value is NaN, or a row has no finite maximum."""
    if dims is None:
        return _summed(graph, value)
    # The largest of a row, bounded first: kernels differ in what the maximum of nothing but -inf is.
    value = _call(graph, torch.ops.aten.clamp.default, value, -_HUGE, _HUGE)
    if value.meta["val"].dim():
        value = _call(graph, torch.ops.aten.amax.default, value, list(dims))
    return _summed(graph, _call(graph, torch.ops.aten.mul.Tensor, value, _HUGE))


def _summed(graph: fx.Graph, value: fx.Node) -> fx.Node:
    total = _call(graph, torch.ops.aten.sum.default, value)
    if total.meta["val"].dtype is not torch.float32:
        total = _call(graph, torch.ops.aten._to_copy.default, total, dtype=torch.float32)
    return total


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


def _watches(graph_module: fx.GraphModule, infinite: Collection[fx.Node]) -> list[Watch]:
    ranges: dict[fx.Node, Range] = {}
    found: dict[Watch, None] = {}
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            ranges[node] = ANYTHING_BUT_NAN if node in infinite else FINITE
        elif node.op == "get_attr":
            ranges[node] = range_of_tensor(getattr(graph_module, str(node.target)))
        elif node.op == "call_function":
            for watch in _needed(node, ranges):
                found[watch] = None
                source = ranges[watch.node]
                # A call that gets past the watch has none.
                ranges[watch.node] = replace(source, nan=False)
            ranges[node] = range_of_result(node, ranges)
    return list(found)


def _needed(node: fx.Node, ranges: Mapping[fx.Node, Range]) -> list[Watch]:
    name = op_name(node)
    if name in _KEEPERS or name == "getitem":
        return []
    sources = [source for source in node.all_input_nodes if is_float(source)]
    found = [Watch(source) for source in sources if ranges[source].nan]
    if name in _SOFTMAXES:
        [source] = sources
        dim = node.args[1]
        assert isinstance(dim, int)
        found += [Watch(source, (dim,))] if ranges[source].infinite else []
    elif name == "aten.amax.default" and ranges[sources[0]].below:
        found.append(Watch(sources[0], _dims_of(node)))
    elif (name == "aten.amin.default" and ranges[sources[0]].above) or (
        name in _LARGEST and ranges[sources[0]].below
    ):
        found.append(Watch(sources[0]))
    return found


def _dims_of(node: fx.Node) -> tuple[int, ...]:
    """Return the dimensions that a reduction goes along; none stand for all."""
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", ())
    found = (dims,) if isinstance(dims, int) else tuple(dims or ())  # type: ignore[arg-type]  # a list of them
    return found or tuple(range(node.args[0].meta["val"].dim()))  # type: ignore[union-attr]


# Of nothing but -inf, OpenVINO's give the least finite number.
_LARGEST = op_names("max_pool2d_with_indices.default max_pool3d_with_indices.default")
_SOFTMAXES = frozenset({"aten._softmax.default", "aten._log_softmax.default"})
# What they are given and is NaN makes their result NaN: nothing but arithmetic.
_KEEPERS = op_names(
    "view.default _unsafe_view.default permute.default unsqueeze.default expand.default squeeze.dim "
    "squeeze.dims transpose.int slice.Tensor select.int cat.default flip.default split.Tensor "
    "split_with_sizes.default unbind.int slice_scatter.default select_scatter.default pixel_shuffle.default "
    "pixel_unshuffle.default repeat.default clone.default index_select.default embedding.default "
    "gather.default index.Tensor add.Tensor add.Scalar sub.Tensor rsub.Scalar mul.Tensor mul.Scalar "
    "div.Tensor div.Scalar neg.default abs.default sqrt.default mm.default bmm.default addmm.default "
    "linear.default dot.default convolution.default sum.default sum.dim_IntList mean.default mean.dim "
    "constant_pad_nd.default masked_fill.Scalar where.self"
)

"""Finds where an island could lose a NaN, so that those places are watched on each call.

Many of OpenVINO's kernels take NaN for a number: relu gives 0 for it, maximum the other operand, and on
ARM the softmax of nothing but -inf is uniform. Where such an op reads a value that could be NaN, it is added
to a sum that the island gives besides its outputs: that is not finite just when the caller must run with
eager torch. Another sum goes over its inputs and outputs, so that nobody else need look at each of them.

What is followed are the ways in which finite inputs lead to NaN and infinity: roots of negative numbers,
division by zero, infinities among the weights and scalars, large exponents. Sums and products that overflow
float32 are not among them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import torch
from torch import fx

# Its square is more than float32 holds.
_HUGE = 1e30


@dataclass(frozen=True, slots=True)
class Range:
    """What a float tensor could hold.

    Args:
        nan, above, below: whether it could hold NaN, infinity, and minus infinity.
        sign: 2 if all is greater than 0, 1 if nothing is less, 0 if nothing is known.
    """

    nan: bool = False
    above: bool = False
    below: bool = False
    sign: int = 0

    @property
    def infinite(self) -> bool:
        """Whether it could hold an infinity of either sign."""
        return self.above or self.below


FINITE = Range()
ANYTHING_BUT_NAN = Range(above=True, below=True)
ANYTHING = Range(True, True, True)


@dataclass(frozen=True, slots=True)
class Watch:
    """A value that must be looked at on each call.

    Args:
        node: the value.
        dim: if it is the input of a softmax, along which dimension: each row must have a finite maximum.
    """

    node: fx.Node
    dim: int | None = None


def find_watches(graph_module: fx.GraphModule) -> tuple[list[Watch], list[int]]:
    """Return what must be watched in an island, and which of its inputs must be finite on each call.

    An input may hold infinities if that asks for no watch but those of a softmax: masks do.
    """
    inputs = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    floats = [index for index, node in enumerate(inputs) if _is_float(node)]
    watches = _watches(graph_module, ())
    least = set(watches)
    free: list[int] = []
    # Small ones first: a mask is smaller than what it masks.
    for index in sorted(floats, key=lambda index: inputs[index].meta["val"].numel()):
        wider = _watches(graph_module, {inputs[other] for other in (*free, index)})
        if {watch for watch in wider if watch.dim is None} <= least:
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
    crossing = [_summed(graph, node) for node in dict.fromkeys([*inputs, *returned]) if _is_float(node)]
    inside = [_watched(graph, copies[watch.node], watch.dim) for watch in watches]
    sums = {"crossing": _added(graph, crossing), "inside": _added(graph, inside)}
    found = {name: total for name, total in sums.items() if total is not None}
    graph.output((*returned, *found.values()))
    return fx.GraphModule(graph_module, graph), list(found)


def _watched(graph: fx.Graph, value: fx.Node, dim: int | None) -> fx.Node:
    """Return a number that is not finite if a value is NaN, or a softmax's row has no finite maximum."""
    if dim is None:
        return _summed(graph, value)
    # The largest of a row, bounded first: kernels differ in what the maximum of nothing but -inf is.
    value = _call(graph, torch.ops.aten.clamp.default, value, -_HUGE, _HUGE)
    if value.meta["val"].dim():
        value = _call(graph, torch.ops.aten.amax.default, value, [dim])
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
            ranges[node] = _of_tensor(getattr(graph_module, str(node.target)))
        elif node.op == "call_function":
            for watch in _needed(node, ranges):
                found[watch] = None
                source = ranges[watch.node]
                # A call that gets past the watch has none.
                ranges[watch.node] = replace(source, nan=False)
            ranges[node] = _result(node, ranges)
    return list(found)


def _needed(node: fx.Node, ranges: Mapping[fx.Node, Range]) -> list[Watch]:
    name = _name(node)
    if name in _KEEPERS or name == "getitem":
        return []
    sources = [source for source in node.all_input_nodes if _is_float(source)]
    found = [Watch(source) for source in sources if ranges[source].nan]
    if name in _SOFTMAXES:
        [source] = sources
        dim = node.args[1]
        assert isinstance(dim, int)
        found += [Watch(source, dim)] if ranges[source].infinite else []
    return found


def _result(node: fx.Node, ranges: Mapping[fx.Node, Range]) -> Range:
    transfer = _TRANSFER.get(_name(node))
    if transfer is not None:
        return transfer(node, lambda value: _range_of(value, ranges))
    sources = [ranges[source] for source in node.all_input_nodes if _is_float(source)]
    if _name(node) in _MOVERS:
        return _union(*sources)
    return ANYTHING if any(source.nan or source.infinite for source in sources) else FINITE


def _range_of(value: object, ranges: Mapping[fx.Node, Range]) -> Range:
    if isinstance(value, fx.Node):
        return ranges.get(value, FINITE) if _is_float(value) else FINITE
    if isinstance(value, (int, float)):
        return _of_bounds(float(value), float(value))
    return FINITE


def _of_tensor(tensor: torch.Tensor) -> Range:
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return FINITE
    least, most = (float(end) for end in torch.aminmax(tensor.detach()))
    return _of_bounds(least, most)


def _of_bounds(least: float, most: float) -> Range:
    if math.isnan(least) or math.isnan(most):
        return ANYTHING
    sign = 2 if least > 0 else 1 if least >= 0 else 0
    return Range(above=most == math.inf, below=least == -math.inf, sign=sign)


def _union(*several: Range) -> Range:
    return Range(
        any(one.nan for one in several),
        any(one.above for one in several),
        any(one.below for one in several),
        min((one.sign for one in several), default=0),
    )


Look = Callable[[object], Range]


def _add(node: fx.Node, look: Look) -> Range:
    left, right = look(node.args[0]), look(node.args[1])
    alpha = node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)
    if not isinstance(alpha, (int, float)) or alpha < 0 or not math.isfinite(alpha):
        return _sum_of(left, replace(right, above=right.infinite, below=right.infinite, sign=0))
    return _sum_of(left, right)


def _sub(node: fx.Node, look: Look) -> Range:
    right = look(node.args[1])
    return _sum_of(look(node.args[0]), Range(right.nan, right.infinite, right.infinite))


def _sum_of(left: Range, right: Range) -> Range:
    nan = left.nan or right.nan or (left.above and right.below) or (left.below and right.above)
    return Range(nan, left.above or right.above, left.below or right.below, _sum_sign(left.sign, right.sign))


def _sum_sign(left: int, right: int) -> int:
    return max(left, right) if left and right else 0


def _mul(node: fx.Node, look: Look) -> Range:
    left, right = look(node.args[0]), look(node.args[1])
    sign = min(left.sign, right.sign)
    if node.args[0] is node.args[1]:
        sign = max(sign, 1)
    if not (left.infinite or right.infinite):
        return Range(left.nan or right.nan, sign=sign)
    return Range(True, True, True, sign)  # 0 times infinity


def _div(node: fx.Node, look: Look) -> Range:
    left, right = look(node.args[0]), look(node.args[1])
    if isinstance(node.args[1], (int, float)) and node.args[1] != 0 and math.isfinite(node.args[1]):
        return Range(left.nan, left.infinite, left.infinite, left.sign if node.args[1] > 0 else 0)
    if right.sign == 2 and not right.infinite:
        return Range(left.nan or right.nan, left.above, left.below, min(left.sign, 1))
    return ANYTHING


def _pow(node: fx.Node, look: Look) -> Range:
    base, exponent = look(node.args[0]), node.args[1]
    if not isinstance(exponent, (int, float)):
        return ANYTHING
    whole = float(exponent).is_integer()
    sign = base.sign if base.sign else int(whole and exponent % 2 == 0)
    if exponent < 0 and base.sign < 2:
        return ANYTHING
    if not whole and base.sign < 1:
        return ANYTHING
    return Range(base.nan, base.infinite, base.infinite, sign)


def _sqrt(node: fx.Node, look: Look) -> Range:
    source = look(node.args[0])
    return Range(source.nan or source.sign == 0, source.above, False, max(source.sign, 1))


def _rsqrt(node: fx.Node, look: Look) -> Range:
    source = look(node.args[0])
    return Range(source.nan or source.sign == 0, source.sign < 2, False, 1)


def _reciprocal(node: fx.Node, look: Look) -> Range:
    source = look(node.args[0])
    return Range(source.nan, source.sign < 2, source.sign < 1, min(source.sign, 1))


def _exp(node: fx.Node, look: Look) -> Range:
    """The one op whose overflow is followed: 89 is enough."""
    return Range(look(node.args[0]).nan, True, False, 1)


def _attention(node: fx.Node, look: Look) -> Range:
    """A mask may be infinite: torch gives 0 where nothing is attended to."""
    sources = [look(source) for source in node.args[:3]]
    return ANYTHING if any(source.nan or source.infinite for source in sources) else FINITE


def _outside_domain(node: fx.Node, look: Look) -> Range:
    return ANYTHING


def _between(sign: int) -> Callable[[fx.Node, Look], Range]:
    """The result is finite, whatever it is given but NaN."""
    return lambda node, look: Range(look(node.args[0]).nan, sign=sign)


def _abs(node: fx.Node, look: Look) -> Range:
    source = look(node.args[0])
    return Range(source.nan, source.infinite, False, max(source.sign, 1))


def _neg(node: fx.Node, look: Look) -> Range:
    source = look(node.args[0])
    return Range(source.nan, source.below, source.above)


def _relu(node: fx.Node, look: Look) -> Range:
    source = look(node.args[0])
    return Range(source.nan, source.above, False, max(source.sign, 1))


def _clamp(node: fx.Node, look: Look) -> Range:
    source = look(node.args[0])
    low = node.args[1] if len(node.args) > 1 else node.kwargs.get("min")
    high = node.args[2] if len(node.args) > 2 else node.kwargs.get("max")
    floor = look(low) if isinstance(low, (int, float)) else None
    sign = source.sign if floor is None else max(source.sign, floor.sign)
    if high is not None:
        sign = min(sign, look(high).sign)
    return Range(source.nan, source.above and high is None, source.below and floor is None, sign)


def _reduced(node: fx.Node, look: Look) -> Range:
    """A sum or mean."""
    source = look(node.args[0])
    return replace(source, nan=source.nan or (source.above and source.below))


def _where(node: fx.Node, look: Look) -> Range:
    return _union(look(node.args[1]), look(node.args[2]))


def _masked_fill(node: fx.Node, look: Look) -> Range:
    return _union(look(node.args[0]), look(node.args[2]))


def _filled(node: fx.Node, look: Look) -> Range:
    return look(node.args[1])


def _padded(node: fx.Node, look: Look) -> Range:
    return _union(look(node.args[0]), look(node.args[2] if len(node.args) > 2 else 0))


def _norm(node: fx.Node, look: Look) -> Range:
    source = look(node.args[0])
    return Range(source.nan, source.infinite, False, 1)


def _larger(node: fx.Node, look: Look) -> Range:
    left, right = look(node.args[0]), look(node.args[1])
    return replace(_union(left, right), sign=max(left.sign, right.sign))


def _to_copy(node: fx.Node, look: Look) -> Range:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    if _is_float(source):
        return look(source)
    unsigned = isinstance(source.meta.get("val"), torch.Tensor) and source.meta["val"].dtype == torch.bool
    return Range(sign=int(unsigned))


_SOFTMAXES = frozenset({"aten._softmax.default", "aten._log_softmax.default"})


def _names(text: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in text.split())


# They give the elements that they are given, in other places.
_MOVERS = frozenset({"getitem"}) | _names(
    "view.default _unsafe_view.default permute.default unsqueeze.default expand.default squeeze.dim "
    "squeeze.dims transpose.int slice.Tensor select.int cat.default flip.default split.Tensor "
    "split_with_sizes.default unbind.int slice_scatter.default select_scatter.default pixel_shuffle.default "
    "pixel_unshuffle.default repeat.default clone.default index_select.default embedding.default "
    "gather.default index.Tensor amax.default amin.default max_pool2d_with_indices.default "
    "max_pool3d_with_indices.default"
)
# What they are given and is NaN makes their result NaN: nothing but arithmetic.
_KEEPERS = _names(
    "view.default _unsafe_view.default permute.default unsqueeze.default expand.default squeeze.dim "
    "squeeze.dims transpose.int slice.Tensor select.int cat.default flip.default split.Tensor "
    "split_with_sizes.default unbind.int slice_scatter.default select_scatter.default pixel_shuffle.default "
    "pixel_unshuffle.default repeat.default clone.default index_select.default embedding.default "
    "gather.default index.Tensor add.Tensor add.Scalar sub.Tensor rsub.Scalar mul.Tensor mul.Scalar "
    "div.Tensor div.Scalar neg.default abs.default sqrt.default mm.default bmm.default addmm.default "
    "linear.default dot.default convolution.default sum.default sum.dim_IntList mean.default mean.dim "
    "constant_pad_nd.default masked_fill.Scalar where.self"
)
_TRANSFER: dict[str, Callable[[fx.Node, Look], Range]] = {
    f"aten.{name}": transfer
    for names, transfer in (
        ("add.Tensor add.Scalar", _add),
        ("sub.Tensor rsub.Scalar", _sub),
        ("mul.Tensor mul.Scalar", _mul),
        ("div.Tensor div.Scalar", _div),
        ("pow.Tensor_Scalar", _pow),
        ("sqrt.default", _sqrt),
        ("rsqrt.default", _rsqrt),
        ("reciprocal.default", _reciprocal),
        ("exp.default", _exp),
        ("acos.default acosh.default asin.default atanh.default", _outside_domain),
        ("scaled_dot_product_attention.default", _attention),
        ("sigmoid.default _softmax.default hardsigmoid.default", _between(1)),
        ("tanh.default erf.default atan.default sign.default", _between(0)),
        ("abs.default", _abs),
        ("neg.default", _neg),
        ("relu.default", _relu),
        ("clamp.default hardtanh.default", _clamp),
        ("sum.default sum.dim_IntList mean.default mean.dim avg_pool2d.default avg_pool3d.default", _reduced),
        ("_adaptive_avg_pool2d.default _adaptive_avg_pool3d.default cumsum.default", _reduced),
        ("where.self", _where),
        ("masked_fill.Scalar", _masked_fill),
        ("full.default full_like.default", _filled),
        ("constant_pad_nd.default", _padded),
        ("linalg_vector_norm.default var.correction", _norm),
        ("maximum.default", _larger),
        ("_to_copy.default", _to_copy),
    )
    for name in names.split()
}


def _name(node: fx.Node) -> str:
    return "getitem" if node.target is operator.getitem else str(node.target)


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, torch.Tensor) and item.is_floating_point() for item in value)
    return isinstance(value, torch.Tensor) and value.is_floating_point()

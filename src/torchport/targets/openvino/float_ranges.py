"""What a float tensor of an island could hold: NaN, infinities, negative numbers.

What is followed are the ways in which finite inputs lead to NaN and infinity: roots of negative numbers,
division by zero, infinities among the weights and scalars, large exponents. Sums and products that overflow
float32 are not among them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import fx


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


def range_of_result(node: fx.Node, ranges: Mapping[fx.Node, Range]) -> Range:
    transfer = _TRANSFER.get(op_name(node))
    if transfer is not None:
        return transfer(node, lambda value: _range_of(value, ranges))
    sources = [ranges[source] for source in node.all_input_nodes if is_float(source)]
    if op_name(node) in _MOVERS:
        return _union(*sources)
    return ANYTHING if any(source.nan or source.infinite for source in sources) else FINITE


def _range_of(value: object, ranges: Mapping[fx.Node, Range]) -> Range:
    if isinstance(value, fx.Node):
        return ranges.get(value, FINITE) if is_float(value) else FINITE
    if isinstance(value, (int, float)):
        return _of_bounds(float(value), float(value))
    return FINITE


def range_of_tensor(tensor: torch.Tensor) -> Range:
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


def _variance(node: fx.Node, look: Look) -> Range:
    """Of no more elements than the correction takes off, it is 0/0."""
    source, correction = node.args[0], node.kwargs.get("correction", 1)
    assert isinstance(source, fx.Node)
    count = source.meta["val"].numel() // max(node.meta["val"].numel(), 1)
    enough = isinstance(correction, (int, float)) and count > correction
    return _norm(node, look) if enough else ANYTHING


def _larger(node: fx.Node, look: Look) -> Range:
    left, right = look(node.args[0]), look(node.args[1])
    return replace(_union(left, right), sign=max(left.sign, right.sign))


def _to_copy(node: fx.Node, look: Look) -> Range:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    if is_float(source):
        return look(source)
    unsigned = isinstance(source.meta.get("val"), torch.Tensor) and source.meta["val"].dtype == torch.bool
    return Range(sign=int(unsigned))


def op_names(text: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in text.split())


# They give the elements that they are given, in other places.
_MOVERS = frozenset({"getitem"}) | op_names(
    "view.default _unsafe_view.default permute.default unsqueeze.default expand.default squeeze.dim "
    "squeeze.dims transpose.int slice.Tensor select.int cat.default flip.default split.Tensor "
    "split_with_sizes.default unbind.int slice_scatter.default select_scatter.default pixel_shuffle.default "
    "pixel_unshuffle.default repeat.default clone.default index_select.default embedding.default "
    "gather.default index.Tensor amax.default amin.default max_pool2d_with_indices.default "
    "max_pool3d_with_indices.default"
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
        ("linalg_vector_norm.default", _norm),
        ("var.correction", _variance),
        ("maximum.default", _larger),
        ("_to_copy.default", _to_copy),
    )
    for name in names.split()
}


def op_name(node: fx.Node) -> str:
    return "getitem" if node.target is operator.getitem else str(node.target)


def is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, torch.Tensor) and item.is_floating_point() for item in value)
    return isinstance(value, torch.Tensor) and value.is_floating_point()

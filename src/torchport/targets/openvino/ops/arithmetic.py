"""Rules for elementwise arithmetic, comparisons, logic, clamping and selection.

Missing because OpenVINO's results differ: `fmod` and `remainder` of floats, with an infinite divisor.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.integer_bounds import bounds_of
from torchport.targets.openvino.float_ranges import (
    ANYTHING,
    Range,
    absolute,
    added,
    divided,
    multiplied,
    negated,
    powered,
    squared,
    union,
)
from torchport.targets.openvino.float_values import Values
from torchport.targets.openvino.int4_weights import is_quantized_lookup
from torchport.targets.openvino.norm_ranges import decomposed_norm
from torchport.targets.openvino.open_size_checks import any_size
from torchport.targets.openvino.rules import (
    NO_FLOATS,
    Misread,
    NaN,
    argument,
    given,
    value_of,
)
from torchport.targets.openvino.rules import checked as checked_op
from torchport.targets.openvino.rules import takes as takes_op

# Elementwise ops support any sizes.
takes = partial(takes_op, open=any_size)
checked = partial(checked_op, open=any_size)


# Adding to a larger number rounds the other operand by more than 0.001.
_LARGE = 2.0**14


def _sum_range(node: fx.Node, values: Values) -> Range:
    """Return the range of x + alpha * y, x - alpha * y or y - alpha * x."""
    name = str(node.target)
    first, second = values.of(node.args[0]), values.of(node.args[1])
    if "rsub" in name:
        first, second = second, first
    scaled = multiplied(second, values.of(given(node, 2, "alpha", 1)))
    return added(first, negated(scaled) if "sub" in name else scaled)


@checked("add.Tensor add.Scalar sub.Tensor rsub.Scalar", "fib", _sum_range, NaN.EXACT)
def _sum(node: fx.Node) -> Verdict | None:
    """Require a numeric `alpha`, which the frontend casts to the result's dtype; refuse merged additions."""
    alpha = node.kwargs.get("alpha", given(node, 2, "alpha", 1))
    if not isinstance(alpha, (int, float)) or isinstance(alpha, bool):
        return argument(f"alpha is {alpha!r}")
    last, first = _added_number(node), _added_number(node.args[0])
    if abs(first) > _LARGE and abs(first + last) < abs(first) / 2:
        return argument(
            f"adding {first:g} and then {last:g} rounds the tensor, but the device may merge the two",
            "use torch.round",
        )
    return None


def _added_number(node: object) -> float:
    """Return the float that a node adds to a tensor; 0 for other nodes."""
    name = str(node.target) if isinstance(node, fx.Node) else ""
    sign = {"aten.add.Tensor": 1.0, "aten.add.Scalar": 1.0, "aten.sub.Tensor": -1.0}.get(name)
    if sign is None or len(node.args) != 2 or node.kwargs:  # type: ignore[attr-defined]  # a node
        return 0.0
    number = node.args[1]  # type: ignore[attr-defined]  # a node
    return sign * number if isinstance(number, float) else 0.0


def _product_range(node: fx.Node, values: Values) -> Range:
    left, right = node.args[:2]
    if left is right:
        return squared(values.of(left))
    return decomposed_norm(node, values) or multiplied(values.of(left), values.of(right))


takes("mul.Tensor mul.Scalar", "fib", _product_range, NaN.EXACT)


def _quotient_range(node: fx.Node, values: Values) -> Range:
    return decomposed_norm(node, values) or divided(values.of(node.args[0]), values.of(node.args[1]))


@checked("div.Tensor div.Scalar", "fib", _quotient_range, NaN.EXACT)
def _division(node: fx.Node) -> Verdict | None:
    divisor = node.args[1]
    if isinstance(divisor, (int, float)) and divisor == 0:
        return argument("the divisor is 0")
    return None


def _power_range(node: fx.Node, values: Values) -> Range:
    exponent = node.args[1]
    return powered(values.of(node.args[0]), exponent) if isinstance(exponent, (int, float)) else ANYTHING


# The root of -inf is NaN in torch, and infinite or 0 on the device. Computed in float32, as the exponent
# would be rounded too.
@checked("pow.Tensor_Scalar", "f", _power_range, NaN.MADE, Misread.MINUS, wide=True)
def _power(node: fx.Node) -> Verdict | None:
    exponent = node.args[1]
    if not isinstance(exponent, (int, float)) or not math.isfinite(exponent):
        return argument(f"the exponent is {exponent!r}")
    return None


@checked("floor_divide.default", "i", NO_FLOATS)
def _floor_divide(node: fx.Node) -> Verdict | None:
    """Refuse divisors that could be 0, for which torch raises, and quotients that OpenVINO would truncate.

    Also a divisor of -1: engines must not divide the lowest integer by it; see `bounded_divisors.py`.
    """
    low, high = bounds_of(node.args[1])
    if low <= 0 <= high:
        return argument("the divisor could be 0")
    if low <= -1 <= high:
        return argument("the divisor could be -1")
    least, most = bounds_of(node.args[0])
    if (least < 0 and high > 0) or (most > 0 and low < 0):
        return argument("the quotient could be negative, and the device may round it towards 0")
    return None


@checked("remainder.Scalar", "i", NO_FLOATS)
def _remainder(node: fx.Node) -> Verdict | None:
    divisor = node.args[1]
    if not isinstance(divisor, int) or divisor <= 0:
        return argument(f"the divisor is {divisor!r}")
    if bounds_of(node.args[0])[0] < 0:
        return argument("the dividend could be negative")
    return None


takes("neg.default", "fi", lambda node, values: negated(values.of(node.args[0])), NaN.EXACT)
takes("abs.default", "fi", lambda node, values: absolute(values.of(node.args[0])), NaN.EXACT)

# OpenVINO compares floats as torch does, except NaN.
takes("eq.Tensor eq.Scalar ne.Tensor ne.Scalar", "fib", NO_FLOATS)
takes("lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar", "fib", NO_FLOATS)
takes("bitwise_not.default bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", "b", NO_FLOATS)
takes("logical_and.default logical_or.default logical_not.default logical_xor.default", "fib", NO_FLOATS)


def _maximum_range(node: fx.Node, values: Values) -> Range:
    left, right = values.of(node.args[0]), values.of(node.args[1])
    return Range(max(left.low, right.low), max(left.high, right.high), left.nan or right.nan)


def _minimum_range(node: fx.Node, values: Values) -> Range:
    left, right = values.of(node.args[0]), values.of(node.args[1])
    return Range(min(left.low, right.low), min(left.high, right.high), left.nan or right.nan)


takes("maximum.default", "fi", _maximum_range)
takes("minimum.default", "fi", _minimum_range)


def _limited_range(node: fx.Node, values: Values) -> Range:
    """Return the range of `clamp`, whose limits may be missing."""
    source = values.of(node.args[0])
    least, most = given(node, 1, "min"), given(node, 2, "max")
    floor = -math.inf if least is None else values.of(least).low
    roof = math.inf if most is None else values.of(most).high
    return Range(min(max(source.low, floor), roof), max(min(source.high, roof), min(floor, roof)), source.nan)


@checked("clamp.default", "fi", _limited_range)
def _clamp(node: fx.Node) -> Verdict | None:
    limits = [limit for limit in (given(node, 1, "min"), given(node, 2, "max")) if limit is not None]
    for limit in limits:
        if not isinstance(limit, (int, float)) or limit != limit:
            return argument(f"a limit is {limit!r}")
    if len(limits) == 2 and limits[0] > limits[1]:  # type: ignore[operator]  # both are numbers
        return argument("the lower limit is above the upper one")
    return None


def _where_range(node: fx.Node, values: Values) -> Range:
    return union([values.of(node.args[1]), values.of(node.args[2])])


takes("where.self", "fib", _where_range, NaN.EXACT)


def _filled_range(node: fx.Node, values: Values) -> Range:
    return union([values.of(node.args[0]), values.of(node.args[2])])


@checked("masked_fill.Scalar", "fib", _filled_range, NaN.EXACT)
def _masked_fill(node: fx.Node) -> Verdict | None:
    value = node.args[2]
    if isinstance(value, float) and math.isnan(value):
        return argument("the fill value is NaN")
    return None


def _copied_range(node: fx.Node, values: Values) -> Range:
    known = {torch.int8: Range(-128.0, 127.0), torch.uint8: Range(0.0, 255.0)}
    return known.get(value_of(node).dtype) or values.of(node.args[0])


# Casts keep the values of floats, and turn integers and booleans into floats of the same value.
@checked("_to_copy.default", "fibq", _copied_range)
def _to_copy(node: fx.Node) -> Verdict | None:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    if {torch.int8, torch.uint8} & {value_of(node).dtype, node.meta["val"].dtype} and not (
        (source.op == "get_attr" or is_quantized_lookup(source)) and node.meta["val"].dtype is torch.float32
    ):
        return Verdict(
            False, "dtype", "8-bit integers are only supported as quantized weights that are cast to float32"
        )
    extra = {key for key, value in node.kwargs.items() if value not in (None, False)}
    if extra - {"dtype", "device", "layout", "memory_format"}:
        return argument(f"unsupported arguments: {', '.join(sorted(extra))}")
    return None

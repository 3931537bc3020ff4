"""Ops on each element by itself.

Not here, because OpenVINO's results differ: the logarithms (0 gives a finite number on ARM), `atan2`
(0, 0), `erfinv` near 1, `cosh` and `sinh` near their overflow, `fmod` and `remainder` by infinity.
"""

from __future__ import annotations

import math

from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.rules import argument, checked, given, takes
from torchport.targets.value_ranges import bounds_of

takes(
    "acos.default acosh.default asin.default asinh.default atan.default atanh.default cos.default "
    "sin.default tan.default tanh.default erf.default exp.default expm1.default sqrt.default rsqrt.default "
    "reciprocal.default sigmoid.default",
    "fib",
)
takes("ceil.default floor.default round.default", "f")
takes(
    "relu.default leaky_relu.default hardtanh.default hardsigmoid.default hardswish.default silu.default", "f"
)
takes("gelu.default mish.default", "f")
takes("abs.default neg.default sign.default", "fi")
takes("mul.Tensor mul.Scalar", "fib")
takes("maximum.default minimum.default", "fi")
takes("clone.default where.self", "fib")
takes("bitwise_not.default bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", "b")
takes("logical_and.default logical_or.default logical_not.default logical_xor.default", "fib")


@checked("add.Tensor add.Scalar sub.Tensor rsub.Scalar", "fib")
def _sum(node: fx.Node) -> Verdict | None:
    """The frontend reads `alpha` as a number of the result's kind."""
    alpha = node.kwargs.get("alpha", given(node, 2, "alpha", 1))
    if not isinstance(alpha, (int, float)) or isinstance(alpha, bool):
        return argument(f"alpha is {alpha!r}")
    return None


@checked("div.Tensor div.Scalar", "fib")
def _division(node: fx.Node) -> Verdict | None:
    divisor = node.args[1]
    if isinstance(divisor, (int, float)) and divisor == 0:
        return argument("the divisor is 0")
    return None


@checked("pow.Tensor_Scalar", "f")
def _power(node: fx.Node) -> Verdict | None:
    exponent = node.args[1]
    if not isinstance(exponent, (int, float)) or not math.isfinite(exponent):
        return argument(f"the exponent is {exponent!r}")
    return None


@checked("clamp.default", "fi")
def _clamp(node: fx.Node) -> Verdict | None:
    limits = [limit for limit in (given(node, 1, "min"), given(node, 2, "max")) if limit is not None]
    for limit in limits:
        if not isinstance(limit, (int, float)) or limit != limit:
            return argument(f"a limit is {limit!r}")
    if len(limits) == 2 and limits[0] > limits[1]:  # type: ignore[operator]  # both are numbers
        return argument("the lower limit is above the upper one")
    return None


@checked("floor_divide.default", "i")
def _floor_divide(node: fx.Node) -> Verdict | None:
    """torch raises for 0 and rounds down; the device does not raise, and rounds towards 0."""
    low, high = bounds_of(node.args[1])
    if low <= 0 <= high:
        return argument("the divisor could be 0")
    least, most = bounds_of(node.args[0])
    if (least < 0 and high > 0) or (most > 0 and low < 0):
        return argument("the quotient could be negative, and OpenVINO would round it up")
    return None


@checked("masked_fill.Scalar", "fib")
def _masked_fill(node: fx.Node) -> Verdict | None:
    value = node.args[2]
    if isinstance(value, float) and math.isnan(value):
        return argument("the value is not a number")
    return None


@checked("_to_copy.default", "fib")
def _to_copy(node: fx.Node) -> Verdict | None:
    extra = {key for key, value in node.kwargs.items() if value not in (None, False)}
    if extra - {"dtype", "device", "layout", "memory_format"}:
        return argument(f"{', '.join(sorted(extra))} cannot be kept")
    return None

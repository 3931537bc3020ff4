"""Rules for unary elementwise functions: roots, exponentials, trigonometry, activations.

Missing because OpenVINO's results differ: the logarithms (of 0, finite on ARM), `atan2` (of 0, 0), `erfinv`
near 1, `cosh` and `sinh` near their overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from torch import fx

from torchport.targets.openvino.float_ranges import (
    ANYTHING,
    MAX,
    Range,
    increasing,
    inverted,
    loosened,
    multiplied,
    union,
)
from torchport.targets.openvino.float_values import Values
from torchport.targets.openvino.open_size_checks import any_size
from torchport.targets.openvino.rules import Floats, NaN, given
from torchport.targets.openvino.rules import takes as takes_op

takes = partial(takes_op, open=any_size)  # elementwise


def _grows(function: Callable[[float], float]) -> Floats:
    """Return the rule for the range of a non-decreasing function."""
    return lambda node, values: increasing(function, values.of(node.args[0]))


def _of(function: Callable[[Range], Range]) -> Floats:
    """Return the rule for a range that depends on the operand's range."""
    return lambda node, values: function(values.of(node.args[0]))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: float(function(x)) if math.isfinite(x) else x


takes("atan.default", "fib", _grows(math.atan))
takes("tanh.default", "fib", _grows(math.tanh))
takes("erf.default", "fib", _grows(math.erf))
takes("sigmoid.default", "fib", _grows(_sigmoid))
takes("asinh.default", "fib", _grows(math.asinh))
takes("exp.default", "fib", _grows(math.exp))
takes("expm1.default", "fib", _grows(math.expm1))
takes("ceil.default", "f", _grows(_whole(math.ceil)))
takes("floor.default", "f", _grows(_whole(math.floor)))
takes("round.default", "f", _grows(_whole(round)))
takes("sign.default", "fi", _of(lambda x: Range(-float(x.low <= 0), float(x.high >= 0), x.nan)))
takes("relu.default", "f", _of(lambda x: Range(max(x.low, 0.0), max(x.high, 0.0), x.nan)))
takes("hardsigmoid.default", "f", _of(lambda x: Range(0.0, 1.0, x.nan)))


def _sqrt(x: Range) -> Range:
    low, high = max(x.low, 0.0), max(x.high, 0.0)
    return loosened(math.sqrt(low), math.sqrt(high), x.nan or x.low < 0)


takes("sqrt.default", "fib", _of(_sqrt), NaN.EXACT)
takes("rsqrt.default", "fib", _of(lambda x: inverted(_sqrt(x))), NaN.MADE)
takes("reciprocal.default", "fib", _of(inverted))


def _between(low: float, high: float, least: float, most: float) -> Callable[[Range], Range]:
    """Return the range of a function with values in [low, high] and the domain [least, most]."""
    return lambda x: loosened(low, high, x.nan or x.low < least or x.high > most)


takes("cos.default sin.default", "fib", _of(_between(-1.0, 1.0, -MAX, MAX)))
takes("tan.default", "fib", _of(_between(-1e10, 1e10, -MAX, MAX)))
takes("acos.default", "fib", _of(_between(0.0, math.pi, -1.0, 1.0)), NaN.MADE)
takes("asin.default", "fib", _of(_between(-math.pi / 2, math.pi / 2, -1.0, 1.0)), NaN.MADE)


def _acosh(x: Range) -> Range:
    return loosened(0.0, math.acosh(max(x.high, 1.0)), x.nan or x.low < 1)


def _atanh(x: Range) -> Range:
    inside = x.low > -0.999 and x.high < 0.999
    ends = (math.atanh(x.low), math.atanh(x.high)) if inside else (-math.inf, math.inf)
    return loosened(*ends, x.nan or x.low < -1 or x.high > 1)


takes("acosh.default", "fib", _of(_acosh), NaN.MADE)
takes("atanh.default", "fib", _of(_atanh), NaN.MADE)


def _gated(lowest: float) -> Callable[[Range], Range]:
    """Return the range of x times a gate between 0 and 1 that goes to 0 as x decreases.

    Minus infinity times 0 is NaN. Some kernels halve or divide by 6 last, so that they overflow before the
    result does. For large negative x, they may err by a few units in the last place of x.
    """

    def gated(x: Range) -> Range:
        if x.largest > MAX / 8:
            return ANYTHING
        low = max(x.low, lowest) + 1e-6 * x.low if x.low < 0 else 0.0
        return loosened(low, max(x.high, 0.0), x.nan)

    return gated


takes("gelu.default", "f", _of(_gated(-0.2)))
takes("silu.default", "f", _of(_gated(-0.3)))
takes("mish.default hardswish.default", "f", _of(_gated(-0.4)))


def _leaky_relu_range(node: fx.Node, values: Values) -> Range:
    source, slope = values.of(node.args[0]), values.of(given(node, 1, "negative_slope", 0.01))
    below = multiplied(Range(min(source.low, 0.0), min(source.high, 0.0), source.nan), slope)
    return union([below, Range(max(source.low, 0.0), max(source.high, 0.0), source.nan)])


takes("leaky_relu.default", "f", _leaky_relu_range)


def _hardtanh_range(node: fx.Node, values: Values) -> Range:
    source = values.of(node.args[0])
    low, high = values.of(given(node, 1, "min_val", -1.0)).low, values.of(given(node, 2, "max_val", 1.0)).high
    return Range(min(max(source.low, low), high), max(min(source.high, high), low), source.nan)


takes("hardtanh.default", "f", _hardtanh_range)

"""Interval arithmetic for float tensors: the range of their values, and whether they could hold NaN.

Every function here is sound: for any operands within their ranges, each element of the result lies in the
returned range. Results and partial sums that overflow float32 are infinite. The rounding of half precision is
added by `stored`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

MAX = float(torch.finfo(torch.float32).max)
# Smaller numbers are denormal, and devices may flush them to 0.
TINY = float(torch.finfo(torch.float32).tiny)
# The bound for partial sums of products. Kernels add in any order, and some (Winograd's) transform their
# operands first, which makes them larger by a few powers of ten.
SAFE = 1e34
# The relative error allowed for a function's rounding.
_SLACK = 1e-5
# The bits of a float32 that are 0 if half precision represents it exactly.
_SPARE_BITS = {torch.bfloat16: 0xFFFF, torch.float16: 0x1FFF}


@dataclass(frozen=True, slots=True)
class Range:
    """What a float tensor could hold.

    Args:
        low, high: the lowest and highest value; infinite if that infinity could occur.
        nan: whether NaN could occur.
    """

    low: float = -MAX
    high: float = MAX
    nan: bool = False

    @property
    def infinite(self) -> bool:
        """Whether it could hold an infinity of either sign."""
        return self.low == -math.inf or self.high == math.inf

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    @property
    def has_zero(self) -> bool:
        """Whether it could hold 0, or a denormal that a device may flush to 0."""
        return self.low < TINY and self.high > -TINY

    @property
    def finite(self) -> Range:
        """This range without infinities and NaN."""
        return Range(max(self.low, -MAX), min(self.high, MAX)) if self.infinite or self.nan else self

    def within(self, limit: float) -> Range:
        """This range clamped to absolute values up to a limit."""
        return Range(min(max(self.low, -limit), limit), max(min(self.high, limit), -limit))


FINITE = Range()
ANYTHING_BUT_NAN = Range(-math.inf, math.inf)
ANYTHING = Range(-math.inf, math.inf, True)


def range_of_tensor(tensor: torch.Tensor) -> Range:
    """Return the range of a tensor's values."""
    if tensor.numel() == 0:
        return Range(0.0, 0.0)
    least, most = (float(end) for end in torch.aminmax(tensor.detach()))
    return range_of_numbers(least, most)


def range_of_numbers(*numbers: float) -> Range:
    """Return the range of numbers rounded to float32."""
    if any(math.isnan(number) for number in numbers):
        return ANYTHING
    return Range(ctypes.c_float(min(numbers)).value, ctypes.c_float(max(numbers)).value)


def rounded(low: float, high: float, nan: bool = False) -> Range:
    """Return the range of numbers between two bounds after rounding to float32, within two ulps."""
    low, high = -_up(-low), _up(high)
    # Denormal results may be flushed to 0.
    return Range(0.0 if 0 < low < TINY else low, 0.0 if -TINY < high < 0 else high, nan)


def loosened(low: float, high: float, nan: bool = False) -> Range:
    """Return a range widened by the rounding error of a function's kernels."""
    return rounded(low - _room(low), high + _room(high), nan)


def _up(number: float) -> float:
    """Return a float32 no less than the number after rounding."""
    number = ctypes.c_float(number).value
    if math.isinf(number):
        return number if number > 0 else -MAX
    return min(number + abs(number) * 2.0**-22, MAX)


def _room(number: float) -> float:
    return abs(number) * _SLACK if math.isfinite(number) else 0.0


def stored(one: Range, dtype: torch.dtype) -> Range:
    """Return the range of an op's result in its dtype, whether OpenVINO rounds it or keeps it in float32.

    OpenVINO computes float16 in float32 throughout, so that nothing overflows in between; bfloat16 has nearly
    float32's range. Rounding never crosses a bound that the dtype represents exactly. Other bounds are
    widened, because OpenVINO decomposes some ops and rounds several times.
    """
    if dtype not in _SPARE_BITS:
        return one
    low, high = -_stored_up(-one.low, dtype), _stored_up(one.high, dtype)
    tiny = float(torch.finfo(dtype).tiny)
    return Range(0.0 if 0 < low < tiny else low, 0.0 if -tiny < high < 0 else high, one.nan)


def _stored_up(number: float, dtype: torch.dtype) -> float:
    """Return a number no less than the number after conversion to a dtype."""
    bits = ctypes.c_uint32.from_buffer(ctypes.c_float(number)).value
    if math.isinf(number) or not bits & _SPARE_BITS[dtype]:
        return number
    information = torch.finfo(dtype)
    number += abs(number) * 8 * information.eps
    if dtype is torch.bfloat16 and number > information.max:
        return math.inf
    return min(number, MAX)


def union(several: Iterable[Range]) -> Range:
    """Return the smallest range that contains all the given ones."""
    given = list(several)
    return Range(min(one.low for one in given), max(one.high for one in given), any(one.nan for one in given))


def negated(one: Range) -> Range:
    """Return the range of -x."""
    return Range(-one.high, -one.low, one.nan)


def absolute(one: Range) -> Range:
    """Return the range of |x|."""
    least = 0.0 if one.low <= 0 <= one.high else min(abs(one.low), abs(one.high))
    return Range(least, one.largest, one.nan)


def added(left: Range, right: Range) -> Range:
    """Return the range of x + y: opposite infinities give NaN."""
    opposite = (left.high == math.inf and right.low == -math.inf) or (
        left.low == -math.inf and right.high == math.inf
    )
    low = -math.inf if -math.inf in (left.low, right.low) else left.low + right.low
    high = math.inf if math.inf in (left.high, right.high) else left.high + right.high
    return rounded(low, high, left.nan or right.nan or opposite)


def multiplied(left: Range, right: Range) -> Range:
    """Return the range of x * y: 0 times infinity gives NaN."""
    corners = [_product(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    nan = (left.has_zero and right.infinite) or (right.has_zero and left.infinite)
    return rounded(min(corners), max(corners), left.nan or right.nan or nan)


def squared(one: Range) -> Range:
    """Return the range of x * x."""
    ends = absolute(one)
    return rounded(_product(ends.low, ends.low), _product(ends.high, ends.high), one.nan)


def inverted(one: Range) -> Range:
    """Return the range of 1 / x: -0 gives -inf."""
    if one.has_zero:
        return Range(-math.inf, math.inf, one.nan)
    return rounded(1 / one.high, 1 / one.low, one.nan)


def divided(left: Range, right: Range) -> Range:
    """Return the range of x / y, even if a device multiplies by 1 / y."""
    product = multiplied(left, inverted(right))
    lost = right.largest > 1 / TINY and left.infinite  # 1 / y is denormal
    return Range(product.low, product.high, product.nan or lost)


def powered(base: Range, exponent: float) -> Range:
    """Return the range of x ** exponent."""
    if exponent == 0:
        return Range(1.0, 1.0)
    if exponent < 0:
        return inverted(powered(base, -exponent))
    if not float(exponent).is_integer():
        high = _power(math.inf if base.low == -math.inf else max(base.high, 0.0), exponent)
        return loosened(_power(max(base.low, 0.0), exponent), high, base.nan or base.low < 0)
    if exponent % 2 == 0:
        base = absolute(base)
    return loosened(_power(base.low, exponent), _power(base.high, exponent), base.nan)


def increasing(function: Callable[[float], float], one: Range) -> Range:
    """Return the range of a non-decreasing function; overflow is infinite."""
    return loosened(_at(function, one.low), _at(function, one.high), one.nan)


def summed(terms: Range, count: int) -> Range:
    """Return the range of a sum of `count` terms, added in any order."""
    low, high = count * terms.low, count * terms.high
    if max(-low, high) > SAFE:
        if terms.nan or terms.low < 0 < terms.high:
            return ANYTHING
        # All terms have the same sign: the sum may overflow to infinity, but not become NaN.
        low, high = (min(low, MAX), math.inf) if low >= 0 else (-math.inf, max(high, -MAX))
    return loosened(low, high, terms.nan)


def averaged(one: Range, count: int) -> Range:
    """Return the range of a mean of up to `count` numbers; some kernels divide before they add."""
    total = summed(one, count)
    return ANYTHING if total.infinite else loosened(one.low, one.high, one.nan)


def _product(left: float, right: float) -> float:
    """Return a corner of a product: 0 times infinity counts as 0, as NaN is tracked separately."""
    return 0.0 if left == 0 or right == 0 else left * right


def _power(base: float, exponent: float) -> float:
    try:
        return math.copysign(abs(base) ** exponent, base)
    except OverflowError:
        return math.copysign(math.inf, base)


def _at(function: Callable[[float], float], number: float) -> float:
    try:
        return function(number)
    except OverflowError:
        return math.copysign(math.inf, number)

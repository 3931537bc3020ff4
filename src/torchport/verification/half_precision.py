"""Accuracy in half precision: a result must be about as close to the float32 result as eager torch's is."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

HALVES = (torch.bfloat16, torch.float16)


def coarsest_step(dtypes: Iterable[torch.dtype]) -> float:
    """Return the rounding step of the coarsest half-precision dtype, relative to 1; 0 if there is none."""
    return max((torch.finfo(dtype).eps for dtype in dtypes if dtype in HALVES), default=0.0)


def half_difference(
    actual: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor, *, step: float, ops: int = 1
) -> str:
    """Return how a result is worse than eager torch's in half precision; empty if it is not.

    Its largest error may be twice that of eager torch plus one rounding step; over many ops, rounding once
    in each accumulates to half a step times the square root of their number. Where eager torch overflows and
    float32 does not, both results are accepted, as are integers and booleans that equal eager torch's in
    either dtype.

    Args:
        actual: the result.
        eager: eager torch's result in the model's own dtypes.
        wide: eager torch's result for the same inputs in float32.
        step: one rounding step of the model's dtype, relative to a value of 1.
        ops: how many ops led to the result.

    Example:
        >>> wide = torch.tensor([1.0, 100.0])
        >>> eager = wide.bfloat16()
        >>> half_difference(eager * 1.1, eager, wide, step=2**-7)
        'is off by 10, eager torch in that dtype by 0'
    """
    if not eager.is_floating_point():
        same = (actual == eager) | (actual == wide)
        return "" if bool(same.all()) else "differs from eager torch, in its own dtype and in float32"
    rounded = wide.to(eager.dtype)
    odd = ~torch.isfinite(actual)
    if not bool((_same(actual, eager) | _same(actual, rounded))[odd].all()):
        return "is not finite where eager torch is"
    # A finite element must be finite in float32 too: only eager torch may have overflowed.
    if not bool((torch.isfinite(wide) | _same(actual, eager))[~odd].all()):
        return "is finite where eager torch is not"
    compared = ~odd & torch.isfinite(wide)
    if not bool(compared.any()):
        return ""
    exact = wide[compared].double()
    error = float((actual[compared].double() - exact).abs().max())
    theirs = torch.isfinite(eager[compared])
    eager_error = float((eager[compared].double() - exact)[theirs].abs().max()) if bool(theirs.any()) else 0.0
    room = step * max(1.0, math.sqrt(ops) / 2) * float(exact.abs().max()) + 1e-6
    if error <= 2 * eager_error + room:
        return ""
    return f"is off by {error:.3g}, eager torch in that dtype by {eager_error:.3g}"


def _same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left == right) | (left.isnan() & right.isnan())

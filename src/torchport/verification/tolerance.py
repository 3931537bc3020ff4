"""How far a value may be off, for each dtype: the one table that every comparison reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchport.records import PCC_THRESHOLD, Record


@dataclass(frozen=True, slots=True)
class Tolerance(Record):
    """A value is close if it is off by at most `atol + rtol * |expected|`.

    Args:
        rtol: what is allowed relative to the expected value.
        atol: what is allowed in any case.
        pcc: where given, a tensor with values that are off is close as a whole if its PCC reaches this, and
            it is no further off in length than such a PCC allows. For devices that store few bits:
            rounding adds up over hundreds of ops, and one unlucky element says little.
        noise: expected values that vary by no more than this, relative to the largest, are equal as far as
            the device can tell: they have no PCC, and are judged by their error.
        stored: the name of the dtype that the device stores results in, where it is a narrow one. A tensor
            is close as a whole, too, if it is at most `MOST_EXCESS` times as far off as the expected one is
            once it is stored so.
    """

    rtol: float
    atol: float
    pcc: float | None = None
    noise: float = 0.0
    stored: str = ""


EXACT = Tolerance(0.0, 0.0)

# A device sums in another order than eager torch, over thousands of terms and hundreds of layers, so
# results are many rounding steps apart; a wrong op is off by far more. Where one step is coarse
# already, as in eight bits, two steps are allowed.
_DOUBLE = Tolerance(1e-7, 1e-7)
_SINGLE = Tolerance(1e-3, 1e-3)
_HALF = Tolerance(1e-2, 1e-2)
TOLERANCES: dict[torch.dtype, Tolerance] = {
    torch.float64: _DOUBLE,
    torch.float32: _SINGLE,
    torch.float16: _HALF,
    torch.bfloat16: Tolerance(2e-2, 2e-2),
    torch.float8_e4m3fn: Tolerance(0.25, 0.25),
    torch.float8_e4m3fnuz: Tolerance(0.25, 0.25),
    torch.float8_e5m2: Tolerance(0.5, 0.5),
    torch.float8_e5m2fnuz: Tolerance(0.5, 0.5),
    torch.float8_e8m0fnu: Tolerance(1.0, 0.0),  # powers of two alone: one step is a factor of two
    torch.complex128: _DOUBLE,
    torch.complex64: _SINGLE,
    torch.complex32: _HALF,
}


# What a whole model may be off by on a device that computes in fewer bits than float32 has.
LOW_PRECISION = Tolerance(5e-2, 5e-2, PCC_THRESHOLD, noise=2.0**-7, stored="bfloat16")  # noise: one step


def island_tolerance(expected: torch.Tensor, *, low_precision: bool, whole: bool) -> Tolerance:
    """Return how far an island's output may be off.

    The error of a long sum scales with the largest of what was summed, not with the result. In a low
    precision, rounding adds up over many ops to more than one op's tolerance: there the PCC decides. What is
    in half precision itself is judged by `half_difference`.

    Args:
        expected: the output of eager torch.
        low_precision: whether the device was asked to compute in less than float32.
        whole: whether the island is one of the model's, or one op of it on its own.
    """
    if not expected.is_floating_point() and not expected.is_complex():
        return EXACT
    rtol, atol = (LOW_PRECISION.rtol, LOW_PRECISION.atol) if low_precision else (1e-3, 1e-4)
    sizes = expected.detach().to(torch.complex128 if expected.is_complex() else torch.float64).abs()
    sizes = sizes[sizes.isfinite()]
    largest = float(sizes.max()) if sizes.numel() else 0.0
    return Tolerance(rtol, atol * largest + 1e-6, PCC_THRESHOLD if low_precision and whole else None)


def tolerance_for(dtype: torch.dtype) -> Tolerance:
    """Return the tolerance of a dtype; integers and booleans are exact.

    Example:
        >>> tolerance_for(torch.float32)
        Tolerance(rtol=0.001, atol=0.001, pcc=None, noise=0.0, stored='')
    """
    return TOLERANCES.get(dtype, EXACT)

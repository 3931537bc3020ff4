"""The tolerance of each dtype: the single table that every comparison reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchport.records import PCC_THRESHOLD, Record


@dataclass(frozen=True, slots=True)
class Tolerance(Record):
    """How far a value may be off: it is close if its error is at most `atol + rtol * |expected|`.

    Args:
        rtol: the relative tolerance.
        atol: the absolute tolerance.
        pcc: if given, a tensor with elements outside the tolerance is close as a whole if its PCC reaches
            this and its distance from the expected tensor is no larger than such a PCC implies. For
            low-precision devices: rounding accumulates over hundreds of ops, and one outlier says little.
        noise: expected values that vary by no more than this, relative to the largest, are indistinguishable
            to the device: their PCC is undefined, and only their error counts.
        stored: the name of the narrow dtype in which the device stores results, if any. A tensor is also
            close as a whole if its error is at most `MOST_EXCESS` times the error of storing the expected
            one in that dtype.
    """

    rtol: float
    atol: float
    pcc: float | None = None
    noise: float = 0.0
    stored: str = ""


EXACT = Tolerance(0.0, 0.0)

# A device sums in a different order than eager torch, over thousands of terms and hundreds of layers, so
# results are many rounding steps apart; a wrong op is off by far more. Where one rounding step is already
# coarse, as in eight bits, two steps are allowed.
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
    torch.float8_e8m0fnu: Tolerance(1.0, 0.0),  # only powers of two: one step is a factor of two
    torch.complex128: _DOUBLE,
    torch.complex64: _SINGLE,
    torch.complex32: _HALF,
}


# The tolerance of a whole model on a device that computes in lower precision than float32.
LOW_PRECISION = Tolerance(5e-2, 5e-2, PCC_THRESHOLD, noise=2.0**-7, stored="bfloat16")  # noise: one step


def island_tolerance(expected: torch.Tensor, *, low_precision: bool, whole: bool) -> Tolerance:
    """Return the tolerance for an island's output.

    The error of a long sum scales with its largest terms rather than with the result. In low precision,
    rounding accumulates over many ops beyond the tolerance of one op: there the PCC decides. Models that
    are themselves in half precision are checked by `half_difference`.

    Args:
        expected: the output of eager torch.
        low_precision: whether the device was told to compute in lower precision than float32.
        whole: whether the output is that of a whole island, rather than of one of its ops run alone.
    """
    if not expected.is_floating_point() and not expected.is_complex():
        return EXACT
    rtol, atol = (LOW_PRECISION.rtol, LOW_PRECISION.atol) if low_precision else (1e-3, 1e-4)
    sizes = expected.detach().to(torch.complex128 if expected.is_complex() else torch.float64).abs()
    sizes = sizes[sizes.isfinite()]
    largest = float(sizes.max()) if sizes.numel() else 0.0
    return Tolerance(rtol, atol * largest + 1e-6, PCC_THRESHOLD if low_precision and whole else None)


def tolerance_for(dtype: torch.dtype) -> Tolerance:
    """Return the tolerance of a dtype; integers and booleans must be equal.

    Example:
        >>> tolerance_for(torch.float32)
        Tolerance(rtol=0.001, atol=0.001, pcc=None, noise=0.0, stored='')
    """
    return TOLERANCES.get(dtype, EXACT)

"""Compares a tensor with the expected one."""

from __future__ import annotations

import math

import torch

from torchport.errors import VerificationError
from torchport.records import MOST_EXCESS, TensorComparison
from torchport.verification.correlation import close_as_a_whole, correlation, excess_over_stored
from torchport.verification.tolerance import EXACT, Tolerance, tolerance_for


def compare_tensors(
    actual: torch.Tensor,
    expected: torch.Tensor,
    *,
    path: str = "output",
    tolerance: Tolerance | None = None,
) -> TensorComparison:
    """Compare a tensor with the expected one, in float64.

    NaN equals NaN and an infinity equals itself, at the same position; the errors and the PCC are
    computed over the positions where both are finite. Integers and booleans must be equal. The error
    of a complex number is the absolute value of the difference. The relative error is computed where
    the expected value is not 0.

    Args:
        actual, expected: the two tensors.
        path: the output's name in the comparison.
        tolerance: the tolerance for floating-point and complex dtypes; by default that of the dtype.

    Returns:
        The comparison. Tensors whose shapes, dtypes or layouts differ are not compared by value: their
        PCC is 0 and their errors are infinite.

    Raises:
        VerificationError: a tensor has no values, as on the `meta` device.

    Example:
        >>> compare_tensors(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0])).max_absolute
        0.5
    """
    mismatch = _form_mismatch(actual, expected)
    if mismatch:
        return unlike(path, mismatch)
    numeric = expected.is_floating_point() or expected.is_complex()
    allowed = (tolerance or tolerance_for(expected.dtype)) if numeric else EXACT
    return _compare_values(_with_values(actual, path), _with_values(expected, path), path, allowed)


def unlike(path: str, detail: str) -> TensorComparison:
    """Return the comparison of two values that cannot be compared element by element."""
    return TensorComparison(path, False, 0.0, math.inf, math.inf, detail)


def _form_mismatch(actual: torch.Tensor, expected: torch.Tensor) -> str:
    for name, got, wanted in (
        ("shape", list(actual.shape), list(expected.shape)),
        ("dtype", actual.dtype, expected.dtype),
        ("layout", actual.layout, expected.layout),
    ):
        if got != wanted:
            return f"the {name} is {got}, expected {wanted}"
    return ""


def _with_values(tensor: torch.Tensor, path: str) -> torch.Tensor:
    """Return the tensor dequantized, dense and on the CPU; reject one without values."""
    if tensor.is_meta:
        raise VerificationError(
            "the tensor has no values: it is on the 'meta' device",
            where=path,
            remedy="compare results of runs on real tensors",
        )
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.cpu()


def _compare_values(
    actual: torch.Tensor, expected: torch.Tensor, path: str, allowed: Tolerance
) -> TensorComparison:
    wide = torch.complex128 if expected.is_complex() else torch.float64
    got, wanted = actual.to(wide).flatten(), expected.to(wide).flatten()
    # Equality is tested in the original dtype: float64 cannot represent every int64.
    same = (actual == expected).flatten() | (got.isnan() & wanted.isnan())
    finite = got.isfinite() & wanted.isfinite()
    error = (got - wanted).abs()
    size = wanted.abs()
    close = same | (finite & (error <= allowed.atol + allowed.rtol * size))
    if allowed == EXACT:
        close = same
    ok = bool(close.all())
    mismatched = not bool((same | finite).all())  # NaN or an infinity on one side only
    nonzero = finite & (size > 0)
    pcc = 0.0 if mismatched else _correlation(got[finite], wanted[finite], expected.dtype, ok, allowed.noise)
    excess = None
    if not mismatched and allowed.pcc is not None:
        if allowed.stored and pcc < allowed.pcc and not expected.is_complex():
            excess = excess_over_stored(got[finite], wanted[finite], getattr(torch, allowed.stored))
        whole = close_as_a_whole(got[finite], wanted[finite], pcc=pcc, least=allowed.pcc)
        ok = ok or whole or (excess is not None and excess <= MOST_EXCESS)
    return TensorComparison(
        path,
        ok,
        pcc,
        math.inf if mismatched else _largest(error[finite]),
        math.inf if mismatched else _largest(error[nonzero] / size[nonzero]),
        "" if ok else _explain(actual, expected, error, close, allowed),
        excess,
    )


def _correlation(
    actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, close: bool, noise: float
) -> float:
    if actual.numel() == 0 or (actual.numel() == 1 and close):
        return 1.0
    if actual.numel() == 1:
        return 0.0  # a complex number's two parts would always correlate
    if actual.is_complex():
        actual, expected = torch.view_as_real(actual).flatten(), torch.view_as_real(expected).flatten()
    step = torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0
    return correlation(actual, expected, step=step, close=close, noise=noise)


def _largest(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _explain(
    actual: torch.Tensor,
    expected: torch.Tensor,
    error: torch.Tensor,
    close: torch.Tensor,
    allowed: Tolerance,
) -> str:
    """Return how many elements differ, with the position and values of the worst."""
    wrong = int((~close).sum())
    # NaN cannot be ordered: an error of NaN counts as the worst.
    badness = torch.where(close, -1.0, error.nan_to_num(nan=math.inf))
    worst = int(badness.argmax())
    index = (
        [int(i) for i in torch.unravel_index(torch.tensor(worst), expected.shape)] if expected.dim() else []
    )
    got, wanted = _show(actual.flatten()[worst].item()), _show(expected.flatten()[worst].item())
    limit = "" if allowed == EXACT else f" (allowed: rtol {allowed.rtol:g}, atol {allowed.atol:g})"
    return f"{wrong} of {close.numel()} elements differ{limit}; at {index} it is {got}, expected {wanted}"


def _show(number: bool | int | float | complex) -> str:
    return f"{number:.9g}" if isinstance(number, (float, complex)) else str(number)

"""Compares two results of any structure; this stage's public functions."""

from __future__ import annotations

from torchport.errors import VerificationError
from torchport.records import Comparison
from torchport.verification.pairing import compare_structures
from torchport.verification.tolerance import Tolerance


def compare(actual: object, expected: object, *, tolerance: Tolerance | None = None) -> Comparison:
    """Compare a result with the expected one, tensor by tensor.

    Containers, named tuples, dataclasses, model outputs, caches and objects of any other class are
    traversed; floats in them are compared like tensors, other plain values must be equal.

    Args:
        actual, expected: the results of two runs.
        tolerance: the tolerance for floating-point and complex values; by default that of the dtype,
            see `tolerance_for`. Integers and booleans must always be equal.

    Returns:
        The comparison. A value whose class, shape or dtype differs, or that is missing or unexpected,
        is listed as an output that is not ok.

    Raises:
        VerificationError: a tensor has no values, as on the `meta` device.

    Example:
        >>> compare({"logits": torch.ones(2)}, {"logits": torch.ones(2)}).ok
        True
    """
    rows = tuple(compare_structures(actual, expected, tolerance))
    return Comparison(
        ok=all(row.ok for row in rows),
        pcc=min((row.pcc for row in rows), default=1.0),
        max_absolute=max((row.max_absolute for row in rows), default=0.0),
        max_relative=max((row.max_relative for row in rows), default=0.0),
        outputs=rows,
    )


def assert_close(actual: object, expected: object, *, tolerance: Tolerance | None = None) -> Comparison:
    """Compare a result with the expected one, and raise if they differ.

    Args:
        actual, expected, tolerance: as in `compare`.

    Returns:
        The comparison, in which every output is ok.

    Raises:
        VerificationError: the results differ; the message names the first output that does, and how.

    Example:
        >>> assert_close(torch.ones(2), torch.ones(2)).pcc
        1.0
    """
    comparison = compare(actual, expected, tolerance=tolerance)
    wrong = [row for row in comparison.outputs if not row.ok]
    if wrong:
        first = wrong[0]
        others = f" ({len(wrong)} outputs differ in all)" if len(wrong) > 1 else ""
        errors = f"max absolute error {first.max_absolute:.3g}, PCC {first.pcc:.6f}"
        raise VerificationError(f"{first.detail}; {errors}{others}", where=first.path)
    return comparison

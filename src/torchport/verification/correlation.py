"""Pearson's correlation coefficient (PCC) of two tensors, the accuracy metric that device vendors quote."""

from __future__ import annotations

import math

import torch

# A spread of up to this many rounding steps around the mean is noise, which correlates with nothing.
_NOISE_STEPS = 8


def correlation(
    actual: torch.Tensor, expected: torch.Tensor, *, step: float, close: bool, noise: float = 0.0
) -> float:
    """Return the PCC of two tensors of finite numbers.

    The PCC is the cosine of the angle between the two after subtracting each one's mean: 1 if one
    equals the other up to a positive factor and an offset, 0 if they are uncorrelated, -1 if one is
    the negative of the other. It is a property of the whole tensor: unlike the largest error it does
    not depend on the scale of the values or on a single outlier.

    It is undefined if either is constant, as single elements are. Then 1 is returned if the two are
    close, else 0.

    Args:
        actual, expected: one-dimensional float64 tensors of equal length.
        step: one rounding step of their original dtype, relative to a value of 1.
        close: whether the two are within their tolerance.
        noise: a spread of the expected values, relative to the largest, that the device cannot resolve.

    Example:
        >>> one = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
        >>> correlation(one, -one, step=0.0, close=False)
        -1.0
    """
    if torch.equal(actual, expected):
        return 1.0
    rounding = _NOISE_STEPS * step
    centered = _centered(actual, rounding), _centered(expected, max(rounding, noise))
    if centered[0] is None or centered[1] is None:
        return 1.0 if close else 0.0
    cosine = float(torch.dot(centered[0], centered[1]))
    return max(-1.0, min(1.0, cosine))  # rounding may push it slightly past 1


def close_as_a_whole(actual: torch.Tensor, expected: torch.Tensor, *, pcc: float, least: float) -> bool:
    """Return whether two tensors of finite numbers are close by their PCC, and of about the same scale.

    The PCC ignores scale and offset. Two centered unit vectors whose PCC is `least` are √(2 (1 - least))
    apart; the distance here may be at most that times the expected tensor's norm.

    Args:
        actual, expected: one-dimensional float64 tensors of equal length.
        pcc: their PCC.
        least: the PCC that is required.
    """
    length = float(torch.linalg.vector_norm(expected))
    distance = float(torch.linalg.vector_norm(actual - expected))
    return pcc >= least and distance <= math.sqrt(2 * (1 - least)) * length


def excess_over_stored(actual: torch.Tensor, expected: torch.Tensor, stored: torch.dtype) -> float:
    """Return the ratio of a result's error to the error of storing the expected values in a dtype.

    Args:
        actual, expected: one-dimensional float64 tensors of equal length.
        stored: the dtype.

    Example:
        >>> one = torch.tensor([1.0, 1.001], dtype=torch.float64)  # which bfloat16 stores as 1 and 1
        >>> excess_over_stored(one.flip(0), one, torch.bfloat16).__round__(3)
        1.414
    """
    lost = float(torch.linalg.vector_norm(expected.to(stored).to(expected.dtype) - expected))
    distance = float(torch.linalg.vector_norm(actual - expected))
    return distance / lost if lost else (math.inf if distance else 0.0)


def _centered(values: torch.Tensor, noise: float) -> torch.Tensor | None:
    """Return the values minus their mean, scaled to unit norm, or None if they are constant."""
    largest = float(values.abs().max())
    if largest == 0.0:
        return None
    scaled = values / largest  # so that squares neither overflow nor underflow
    centered = scaled - scaled.mean()
    spread = float(centered.abs().max())
    # The mean itself is subject to rounding, so the spread of a constant may not be exactly 0.
    if spread <= max(noise, 1e-15):
        return None
    centered = centered / spread
    length = float(torch.linalg.vector_norm(centered))
    return centered / length

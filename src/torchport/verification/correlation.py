"""Pearson's correlation coefficient (PCC) of two tensors, the accuracy that device makers quote."""

from __future__ import annotations

import math

import torch

# A spread of so many rounding steps around the mean is noise, and noise correlates with nothing.
_NOISE_STEPS = 8


def correlation(
    actual: torch.Tensor, expected: torch.Tensor, *, step: float, close: bool, noise: float = 0.0
) -> float:
    """Return the PCC of two tensors of finite numbers.

    The PCC is the cosine of the angle between the two after each one's mean was taken off: 1 if
    one is the other up to a positive factor and a shift, 0 if they have nothing to do with each
    other, -1 if one is the other's negative. It is a property of the whole tensor: unlike the
    largest error it does not depend on the scale of the values or on one unlucky element.

    It is not defined if either is constant, as single elements are. Then it is 1 if the two are
    close, else 0.

    Args:
        actual, expected: float64 tensors of one dimension and one length.
        step: one rounding step of the dtype that they came in, relative to a value of 1.
        close: whether the two are within their tolerance.
        noise: a spread of the expected values, relative to the largest, that a device cannot resolve.

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
    return max(-1.0, min(1.0, cosine))  # rounding may lead a hair past 1


def close_as_a_whole(actual: torch.Tensor, expected: torch.Tensor, *, pcc: float, least: float) -> bool:
    """Whether two tensors of finite numbers are close by their PCC, and of about the same scale.

    The PCC sees no factor and no shift. Two vectors of length 1 whose PCC is `least` are √(2 (1 - least))
    apart; no more than that, of the expected one's length, may they be here.

    Args:
        actual, expected: float64 tensors of one dimension and one length.
        pcc: their PCC.
        least: what it must reach.
    """
    length = float(torch.linalg.vector_norm(expected))
    distance = float(torch.linalg.vector_norm(actual - expected))
    return pcc >= least and distance <= math.sqrt(2 * (1 - least)) * length


def excess_over_stored(actual: torch.Tensor, expected: torch.Tensor, stored: torch.dtype) -> float:
    """Return how many times as far off values are as the expected ones are once they are stored in a dtype.

    Args:
        actual, expected: float64 tensors of one dimension and one length.
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
    """Return the values less their mean at length 1, or None if they are constant."""
    largest = float(values.abs().max())
    if largest == 0.0:
        return None
    scaled = values / largest  # so that squares neither overflow nor vanish
    centered = scaled - scaled.mean()
    spread = float(centered.abs().max())
    # The mean itself is off by rounding, so a constant's spread need not be exactly 0.
    if spread <= max(noise, 1e-15):
        return None
    centered = centered / spread
    length = float(torch.linalg.vector_norm(centered))
    return centered / length

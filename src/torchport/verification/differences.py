"""The distribution of the differences between two results: how many elements differ by how much."""

from __future__ import annotations

import torch

from torchport.records import LEAST_DECADE, DifferenceHistogram
from torchport.structure import tensors_in


def difference_histograms(actual: object, expected: object) -> tuple[DifferenceHistogram, ...]:
    """Count the absolute differences between two results' elements by decade.

    Args:
        actual, expected: the results of two runs. Outputs that only one result has, or whose shapes differ,
            are omitted; `compare` reports them.

    Example:
        >>> difference_histograms(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]))[0].zero
        1
    """
    theirs = dict(tensors_in(expected))
    return tuple(
        _histogram(path, ours, theirs[path])
        for path, ours in tensors_in(actual)
        if path in theirs and ours.shape == theirs[path].shape and ours.layout is torch.strided
    )


def _histogram(path: str, ours: torch.Tensor, theirs: torch.Tensor) -> DifferenceHistogram:
    wide = torch.complex128 if ours.is_complex() else torch.float64
    difference = (ours.detach().to(wide) - theirs.detach().to(wide)).abs().flatten()
    finite = difference[difference.isfinite()]
    positive = finite[finite > 0]
    places = (positive.log10().ceil().long() - LEAST_DECADE).clamp(min=0)
    counts = torch.bincount(places).tolist() if len(places) else []
    return DifferenceHistogram(
        path, len(finite) - len(positive), tuple(counts), len(difference) - len(finite)
    )

"""How far a model's outputs on a target are from eager torch's, with the distribution of the differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.comparison import TensorComparison
from torchport.records.record import Record

LEAST_DECADE = -12
"""Differences up to 10^-12 are counted together."""


@dataclass(frozen=True, slots=True)
class DifferenceHistogram(Record):
    """How many elements of an output differ from the expected ones by how much.

    Args:
        path: where the output stands in the result.
        zero: how many do not differ.
        decades: how many differ by at most 10^-12, then by 10^-12 to 10^-11, and so on.
        not_finite: how many differences are no finite number.
    """

    path: str
    zero: int
    decades: tuple[int, ...]
    not_finite: int


@dataclass(frozen=True, slots=True)
class Accuracy(Record):
    """How a model's results on a target differ from eager torch's.

    Args:
        model, target: what ran where.
        outputs: one row for each tensor.
        histograms: the distributions of the differences, for outputs of one shape with the expected ones.
    """

    schema: ClassVar[str] = "torchport.accuracy/1"

    model: str
    target: str
    outputs: tuple[TensorComparison, ...]
    histograms: tuple[DifferenceHistogram, ...]

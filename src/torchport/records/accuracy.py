"""How a model's outputs on a target differ from eager torch's, with histograms of the differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.comparison import TensorComparison
from torchport.records.record import Record

LEAST_DECADE = -12
"""The exponent of the first decade: differences up to 10^-12 are counted together."""


@dataclass(frozen=True, slots=True)
class DifferenceHistogram(Record):
    """A histogram of an output's absolute differences from the expected one.

    Args:
        path: where the output is in the result.
        zero: how many elements do not differ.
        decades: how many differ by at most 10^-12, then by 10^-12 to 10^-11, and so on.
        not_finite: how many differences are not finite.
    """

    path: str
    zero: int
    decades: tuple[int, ...]
    not_finite: int


@dataclass(frozen=True, slots=True)
class Accuracy(Record):
    """How a model's results on a target differ from eager torch's.

    Args:
        model: the model's name.
        target: the target that it ran on.
        outputs: one row for each tensor.
        histograms: the histograms of the differences, for outputs whose shape is the expected one.
    """

    schema: ClassVar[str] = "torchport.accuracy/1"

    model: str
    target: str
    outputs: tuple[TensorComparison, ...]
    histograms: tuple[DifferenceHistogram, ...]

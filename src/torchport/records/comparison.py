"""How two results differ, output by output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.record import Record

# How many times as far off as storing the right result in the device's dtype is taken for right, whatever
# the PCC is: of values that are a few rounding steps apart, none is high.
MOST_EXCESS = 2.0
PCC_THRESHOLD = 0.99  # what the correlation of a result with the one expected must reach, unless one says


@dataclass(frozen=True, slots=True)
class TensorComparison(Record):
    """How one output differs from the one expected.

    Args:
        path: where it is in the output, such as `logits` or `past_key_values.layers[0].keys`.
        ok: whether it is within the tolerance.
        pcc: Pearson's correlation coefficient of the two.
        max_absolute: the largest absolute difference.
        max_relative: the largest difference relative to the expected value.
        detail: why it is not ok, in a sentence; empty if it is.
        excess: of a device that stores few bits, where the PCC is low: how many times as far from the
            expected values these are as the expected ones themselves are once they are stored in that way.
    """

    path: str
    ok: bool
    pcc: float
    max_absolute: float
    max_relative: float
    detail: str = ""
    excess: float | None = None

    def is_accurate(self, threshold: float) -> bool:
        """Whether the PCC reaches a threshold, or the device's own dtype is what keeps it from that."""
        return self.pcc >= threshold or (self.excess is not None and self.excess <= MOST_EXCESS)


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """How one result differs from another.

    Args:
        ok: whether every output is within the tolerance.
        pcc: the lowest of the outputs' correlation coefficients.
        max_absolute, max_relative: the largest of the outputs' differences.
        outputs: one row for each tensor.
    """

    schema: ClassVar[str] = "torchport.comparison/1"

    ok: bool
    pcc: float
    max_absolute: float
    max_relative: float
    outputs: tuple[TensorComparison, ...]

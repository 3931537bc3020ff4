"""How two results differ, output by output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.record import Record

# An error of up to this many times the error of storing the expected result in the device's dtype is accepted
# whatever the PCC: values that are only a few rounding steps apart never correlate well.
MOST_EXCESS = 2.0
PCC_THRESHOLD = 0.99  # the default PCC that a result must reach


@dataclass(frozen=True, slots=True)
class TensorComparison(Record):
    """How one output differs from the expected one.

    Args:
        path: where it is in the output, such as `logits` or `past_key_values.layers[0].keys`.
        ok: whether it is within the tolerance.
        pcc: Pearson's correlation coefficient of the two.
        max_absolute: the largest absolute difference.
        max_relative: the largest difference relative to the expected value.
        detail: why it is not ok, in a sentence; empty if it is.
        excess: on a low-precision device, if the PCC is low: the ratio of the error to the error of storing
            the expected values in the device's dtype.
    """

    path: str
    ok: bool
    pcc: float
    max_absolute: float
    max_relative: float
    detail: str = ""
    excess: float | None = None

    def is_accurate(self, threshold: float) -> bool:
        """Return whether the PCC reaches a threshold, or only the device's own dtype prevents that."""
        return self.pcc >= threshold or (self.excess is not None and self.excess <= MOST_EXCESS)


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """How one result differs from another.

    Args:
        ok: whether every output is within the tolerance.
        pcc: the lowest correlation coefficient of any output.
        max_absolute, max_relative: the largest differences of any output.
        outputs: one row for each tensor.
    """

    schema: ClassVar[str] = "torchport.comparison/1"

    ok: bool
    pcc: float
    max_absolute: float
    max_relative: float
    outputs: tuple[TensorComparison, ...]

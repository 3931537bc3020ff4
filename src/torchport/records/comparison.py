"""How two results differ, output by output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.record import Record

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
    """

    path: str
    ok: bool
    pcc: float
    max_absolute: float
    max_relative: float
    detail: str = ""


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

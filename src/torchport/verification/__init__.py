"""Two results → a `Comparison` of them, and the op where two runs part."""

from torchport.verification.compare import assert_close, compare
from torchport.verification.divergence import Divergence, first_divergence
from torchport.verification.tensors import compare_tensors
from torchport.verification.tolerance import (
    EXACT,
    LOW_PRECISION,
    TOLERANCES,
    Tolerance,
    island_tolerance,
    tolerance_for,
)

__all__ = [
    "assert_close", "compare", "compare_tensors", "Divergence", "EXACT", "first_divergence",
    "island_tolerance", "LOW_PRECISION", "Tolerance", "tolerance_for", "TOLERANCES",
]  # fmt: skip

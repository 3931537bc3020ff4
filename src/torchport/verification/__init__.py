"""Two results → a `Comparison` of them, and the op at which two runs diverge."""

from torchport.verification.compare import assert_close, compare
from torchport.verification.differences import difference_histograms
from torchport.verification.divergence import Divergence, first_divergence
from torchport.verification.half_precision import HALVES, coarsest_step, half_difference
from torchport.verification.tensor_bytes import tensor_bytes
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
    "difference_histograms",
    "assert_close", "coarsest_step", "compare", "compare_tensors", "Divergence", "EXACT", "first_divergence",
    "half_difference", "HALVES", "island_tolerance", "LOW_PRECISION", "tensor_bytes", "Tolerance",
    "tolerance_for", "TOLERANCES",
]  # fmt: skip

"""Two results → a `Comparison` of them, and the op where two runs part."""

from torchport.verification.compare import assert_close, compare
from torchport.verification.divergence import Divergence, first_divergence
from torchport.verification.half_precision import HALVES, coarsest_step, half_difference
from torchport.verification.tensors import compare_tensors
from torchport.verification.tolerance import EXACT, TOLERANCES, Tolerance, tolerance_for

__all__ = [
    "Divergence",
    "EXACT",
    "HALVES",
    "TOLERANCES",
    "Tolerance",
    "assert_close",
    "coarsest_step",
    "compare",
    "compare_tensors",
    "first_divergence",
    "half_difference",
    "tolerance_for",
]

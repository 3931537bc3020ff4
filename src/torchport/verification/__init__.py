"""Two results → a `Comparison` of them, and the op where two runs part."""

from torchport.verification.compare import assert_close, compare
from torchport.verification.differences import difference_histograms
from torchport.verification.divergence import Divergence, first_divergence
from torchport.verification.tensors import compare_tensors
from torchport.verification.tolerance import EXACT, TOLERANCES, Tolerance, tolerance_for

__all__ = [
    "Divergence",
    "EXACT",
    "TOLERANCES",
    "Tolerance",
    "assert_close",
    "compare",
    "compare_tensors",
    "difference_histograms",
    "first_divergence",
    "tolerance_for",
]

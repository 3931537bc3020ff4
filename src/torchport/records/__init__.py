"""The values that pass between stages: frozen, typed, JSON in and out; no torch."""

from torchport.records.bench import BenchRecord, Status
from torchport.records.comparison import Comparison, TensorComparison
from torchport.records.coverage import Coverage, IslandSummary, StayedOp
from torchport.records.program import IslandMeta, ProgramRecord
from torchport.records.record import JSON, Record
from torchport.records.tensor_spec import ITEM_SIZES, TensorSpec
from torchport.records.verdict import REASONS, SUPPORTED, Reason, Verdict

__all__ = [
    "BenchRecord",
    "Comparison",
    "Coverage",
    "ITEM_SIZES",
    "IslandMeta",
    "IslandSummary",
    "JSON",
    "ProgramRecord",
    "REASONS",
    "Reason",
    "Record",
    "SUPPORTED",
    "Status",
    "StayedOp",
    "TensorComparison",
    "TensorSpec",
    "Verdict",
]

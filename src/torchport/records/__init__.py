"""The values that pass between stages: frozen, typed, JSON in and out; no torch."""

from torchport.records.bench import BenchRecord, Status
from torchport.records.bring_up import BringUp
from torchport.records.comparison import Comparison, TensorComparison
from torchport.records.coverage import Coverage, IslandSummary, StayedOp
from torchport.records.generated_code import GeneratedCode
from torchport.records.installation import Check, Installation, TargetStatus
from torchport.records.program import IslandMeta, ProgramRecord
from torchport.records.record import JSON, Record
from torchport.records.storage import (
    decode_record,
    file_name,
    read_json,
    read_record,
    write_record,
    write_text,
)
from torchport.records.tensor_spec import ITEM_SIZES, TensorSpec
from torchport.records.verdict import REASONS, SUPPORTED, Reason, Verdict

__all__ = [
    "BenchRecord",
    "BringUp",
    "Check",
    "Comparison",
    "Coverage",
    "GeneratedCode",
    "ITEM_SIZES",
    "Installation",
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
    "TargetStatus",
    "TensorSpec",
    "Verdict",
    "decode_record",
    "file_name",
    "read_json",
    "read_record",
    "write_record",
    "write_text",
]

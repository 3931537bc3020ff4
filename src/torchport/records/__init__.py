"""The values that pass between stages: frozen, typed, JSON in and out; no torch."""

from torchport.records.analysis import COST_FILE, MODULES_FILE, OPS_FILE, Analysis, json_text
from torchport.records.bench import BenchRecord, Status
from torchport.records.bring_up import BringUp
from torchport.records.comparison import Comparison, TensorComparison
from torchport.records.cost import Cost, MemoryPeak, ModuleCost, OpCost, Roofline
from torchport.records.coverage import Coverage, IslandSummary, StayedOp
from torchport.records.generated_code import GeneratedCode
from torchport.records.installation import Check, Installation, TargetStatus
from torchport.records.module_table import (
    ROOT,
    ModuleMetadata,
    ModuleTable,
    UniqueModule,
    parent_of,
    shape_text,
)
from torchport.records.module_tree import TreeRow, render_tree_html, tree_rows
from torchport.records.op_configuration import OpConfiguration, OpConfigurations
from torchport.records.op_table import OpMetadata, OpOccurrence, OpTable, TensorType, UniqueOp
from torchport.records.package import (
    InputTensor,
    OutputSummary,
    Package,
    PackagedProgram,
    PackageRun,
    PackageSummary,
    StoredTensor,
)
from torchport.records.program import IslandMeta, ProgramRecord
from torchport.records.record import JSON, Record
from torchport.records.storage import (
    decode_record,
    file_name,
    read_json,
    read_record,
    write_record,
    write_text,
    write_texts,
    written_whole,
)
from torchport.records.tensor_spec import ITEM_SIZES, TensorSpec
from torchport.records.verdict import REASONS, SUPPORTED, Reason, Verdict

__all__ = [
    "Analysis",
    "BenchRecord",
    "BringUp",
    "Check",
    "Comparison",
    "Cost",
    "COST_FILE",
    "Coverage",
    "GeneratedCode",
    "InputTensor",
    "ITEM_SIZES",
    "Installation",
    "IslandMeta",
    "IslandSummary",
    "JSON",
    "MemoryPeak",
    "ModuleCost",
    "ModuleMetadata",
    "MODULES_FILE",
    "ModuleTable",
    "OpConfiguration",
    "OpConfigurations",
    "OpCost",
    "OpMetadata",
    "OpOccurrence",
    "OPS_FILE",
    "OpTable",
    "OutputSummary",
    "Package",
    "PackagedProgram",
    "PackageRun",
    "PackageSummary",
    "ProgramRecord",
    "Reason",
    "REASONS",
    "Record",
    "Roofline",
    "ROOT",
    "Status",
    "StayedOp",
    "StoredTensor",
    "SUPPORTED",
    "TargetStatus",
    "TensorComparison",
    "TensorSpec",
    "TensorType",
    "TreeRow",
    "UniqueModule",
    "UniqueOp",
    "Verdict",
    "decode_record",
    "file_name",
    "json_text",
    "parent_of",
    "read_json",
    "read_record",
    "render_tree_html",
    "shape_text",
    "tree_rows",
    "write_record",
    "write_text",
    "write_texts",
    "written_whole",
]

"""The values passed between stages: frozen, typed, serializable to JSON and back, and free of torch."""

from torchport.records.accuracy import LEAST_DECADE, Accuracy, DifferenceHistogram
from torchport.records.analysis import COST_FILE, MODULES_FILE, OPS_FILE, Analysis, json_text
from torchport.records.bench import BenchRecord, Status
from torchport.records.bring_up import DEFAULT_TARGET, BringUp
from torchport.records.comparison import MOST_EXCESS, PCC_THRESHOLD, Comparison, TensorComparison
from torchport.records.cost import Cost, MemoryPeak, ModuleCost, OpCost, Roofline
from torchport.records.coverage import ConditionalOp, Coverage, IslandSummary, StayedOp
from torchport.records.csv_text import csv_text, read_csv_text
from torchport.records.digest import digest_of
from torchport.records.fallbacks import Fallbacks
from torchport.records.file_lock import has_locks, lock_file
from torchport.records.generated_code import GeneratedCode
from torchport.records.generation_cost import GenerationCost, PhaseCost
from torchport.records.generation_coverage import GenerationCoverage
from torchport.records.generation_form import STATE_KINDS, GenerationForm, MaskSpec, StateForm
from torchport.records.generation_run import GenerationRun, GenerationSpeed
from torchport.records.installation import Check, Installation, TargetStatus
from torchport.records.json_text import parse_json, parse_object
from torchport.records.model_graph import MOST_GRAPH_OPS, GraphModule, GraphOp, ModelGraph, OpKind
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
from torchport.records.op_time import OpTime
from torchport.records.package import (
    InputTensor,
    OutputSummary,
    Package,
    PackagedGeneration,
    PackagedGraph,
    PackagedProgram,
    PackageRun,
    PackageSummary,
    StoredTensor,
)
from torchport.records.plain_files import (
    FoundFiles,
    list_all_files,
    list_files,
    read_plain_file,
    refuse_links,
)
from torchport.records.profile import FoldedTime, FoldKey, Profile, ProfiledOp
from torchport.records.program_record import IslandMeta, ProgramRecord
from torchport.records.raw_ops import NOT_JSONABLE, RAW_COLUMNS, RAW_FORMAT
from torchport.records.record import JSON, Record
from torchport.records.regular_file import open_regular
from torchport.records.storage import (
    atomic_write,
    decode_record,
    file_name,
    read_json,
    read_record,
    write_files,
    write_record,
    write_text,
    write_texts,
)
from torchport.records.survey_row import SurveyRow, SurveyStatus
from torchport.records.temporary_folder import temporary_folder
from torchport.records.tensor_spec import ITEM_SIZES, TensorSpec
from torchport.records.tries import EAGER, EngineTry, Tries, TryStatus
from torchport.records.verdict import REASONS, SUPPORTED, Reason, Verdict

__all__ = [
    "Accuracy", "DifferenceHistogram", "GraphModule", "GraphOp", "LEAST_DECADE", "ModelGraph",
    "MOST_EXCESS", "MOST_GRAPH_OPS", "OpKind",
    "Analysis", "atomic_write", "BenchRecord", "BringUp", "Check", "Comparison", "ConditionalOp", "Cost",
    "COST_FILE", "Coverage", "csv_text", "decode_record", "DEFAULT_TARGET", "digest_of", "Fallbacks",
    "file_name", "GenerationCost", "GenerationCoverage", "GenerationForm",
    "GenerationRun", "GenerationSpeed",
    "FoundFiles", "GeneratedCode", "has_locks", "InputTensor", "Installation", "IslandMeta", "IslandSummary",
    "ITEM_SIZES", "JSON", "json_text", "list_all_files", "list_files", "lock_file", "MaskSpec",
    "MemoryPeak",
    "ModuleCost", "ModuleMetadata", "MODULES_FILE", "ModuleTable", "NOT_JSONABLE", "OpConfiguration",
    "OpConfigurations", "OpCost", "open_regular", "OpMetadata", "OpOccurrence", "OPS_FILE", "OpTable",
    "OpTime", "OutputSummary", "Package", "PackagedGeneration",
    "PackagedGraph", "PackagedProgram", "PackageRun", "PackageSummary",
    "parent_of", "parse_json", "parse_object", "PCC_THRESHOLD", "PhaseCost", "ProgramRecord", "RAW_COLUMNS",
    "RAW_FORMAT", "read_csv_text", "read_json", "read_plain_file", "read_record", "Reason", "REASONS",
    "Record", "refuse_links", "render_tree_html", "Roofline", "ROOT", "shape_text", "Status", "StayedOp",
    "STATE_KINDS", "StateForm", "StoredTensor", "SUPPORTED", "SurveyRow", "SurveyStatus", "TargetStatus",
    "temporary_folder",
    "TensorComparison", "TensorSpec", "TensorType", "tree_rows", "TreeRow", "UniqueModule", "UniqueOp",
    "EAGER", "FoldedTime", "FoldKey", "Profile", "ProfiledOp", "EngineTry", "Tries", "TryStatus",
    "Verdict", "write_files", "write_record", "write_text", "write_texts",
]  # fmt: skip

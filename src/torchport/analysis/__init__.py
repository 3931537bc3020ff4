"""A model and its inputs → its unique modules, its unique ops and its cost."""

from torchport.analysis.analyze_model import analyze
from torchport.analysis.cost import CallCost, bytes_of, call_of, cost_of, flops_of, known_flops
from torchport.analysis.extract import extract_pytorch_ops, extract_unique_modules
from torchport.analysis.model_explorer import export_model_explorer, model_explorer_files
from torchport.analysis.op_configurations import configurations_csv, op_configurations
from torchport.analysis.unique_modules import ModelOrigin
from torchport.analysis.unique_ops import attributes_of, tensor_types_of

__all__ = [
    "analyze", "attributes_of", "bytes_of", "call_of",
    "CallCost", "configurations_csv", "cost_of", "export_model_explorer",
    "extract_pytorch_ops", "extract_unique_modules", "flops_of", "known_flops", "model_explorer_files",
    "ModelOrigin", "op_configurations", "tensor_types_of",
]  # fmt: skip

"""A model and its inputs → a graph of it, with the module path and source line of every node."""

from torchport.capture.export import CallableModule, CapturedModel, export
from torchport.capture.module_state import ModuleState
from torchport.capture.node_origin import module_path, source_line, user_name
from torchport.capture.quiet import quiet_torch

__all__ = [
    "CallableModule",
    "CapturedModel",
    "ModuleState",
    "export",
    "module_path",
    "quiet_torch",
    "source_line",
    "user_name",
]

"""A model and its inputs → views of it: the exported graph, and the stream of the ops that it runs."""

from torchport.capture.export import CallableModule, CapturedModel, export
from torchport.capture.module_calls import ModuleCall
from torchport.capture.module_state import ModuleState
from torchport.capture.node_origin import module_path, source_line, user_name
from torchport.capture.op_call import UNKNOWN_SIZE, OpCall, describe_call, schema_arguments, tensor_spec
from torchport.capture.op_stream import Kernel, Phase, StreamedOp
from torchport.capture.quiet import quiet_torch
from torchport.capture.stream_model import OpStream, stream_ops

__all__ = [
    "CallableModule",
    "CapturedModel",
    "ModuleState",
    "Kernel",
    "ModuleCall",
    "OpCall",
    "OpStream",
    "Phase",
    "StreamedOp",
    "UNKNOWN_SIZE",
    "describe_call",
    "export",
    "module_path",
    "quiet_torch",
    "schema_arguments",
    "source_line",
    "stream_ops",
    "tensor_spec",
    "user_name",
]

"""A model and its inputs → views of it: the exported graph, the graphs of training, the ops
that it runs, the calls that it makes."""

from torchport.capture.aot.aten_graph import AtenGraph, ops_of
from torchport.capture.aot.capture_graphs import capture_graphs
from torchport.capture.aot.compiled_graphs import recording_backend
from torchport.capture.aot.node_origins import source_lines
from torchport.capture.callable_module import as_module
from torchport.capture.calls.applied_functions import apply_function
from torchport.capture.calls.call_graph import CallGraph, capture_calls
from torchport.capture.calls.call_inputs import Argument
from torchport.capture.calls.call_outputs import assemble
from torchport.capture.calls.guards import hold
from torchport.capture.calls.named_objects import named
from torchport.capture.calls.other_sizes import Size, input_sizes, with_other_sizes
from torchport.capture.calls.recorder import Modes
from torchport.capture.calls.traced_calls import TracedCall
from torchport.capture.calls.value_reads import OnDataDependent
from torchport.capture.exported.dynamic_shapes import ANY_BATCH, ANY_SHAPE, ShapeLimits
from torchport.capture.exported.export import CapturedModel, export
from torchport.capture.exported.module_state import ModuleState
from torchport.capture.exported.shared_memory import SharedResult
from torchport.capture.module_calls import ModuleCall
from torchport.capture.node_origin import module_path, source_line, user_name
from torchport.capture.quiet import quiet_torch
from torchport.capture.quoted_names import quote_names
from torchport.capture.stream.op_call import OpCall, describe_call, schema_arguments
from torchport.capture.stream.op_stream import Kernel, StreamedOp
from torchport.capture.stream.stream_model import OpStream, stream_ops
from torchport.capture.tensor_specs import tensor_spec
from torchport.capture.untouched import StandIn, buffers_kept, copy_of, values_kept

__all__ = [
    "ANY_BATCH",
    "ANY_SHAPE",
    "Argument",
    "AtenGraph",
    "CallGraph",
    "CapturedModel",
    "ModuleState",
    "Kernel",
    "ModuleCall",
    "OpCall",
    "OpStream",
    "ShapeLimits",
    "SharedResult",
    "StreamedOp",
    "describe_call",
    "TracedCall",
    "Modes",
    "Size",
    "OnDataDependent",
    "apply_function",
    "assemble",
    "capture_calls",
    "capture_graphs",
    "export",
    "hold",
    "input_sizes",
    "module_path",
    "named",
    "ops_of",
    "quiet_torch",
    "recording_backend",
    "schema_arguments",
    "source_line",
    "source_lines",
    "stream_ops",
    "tensor_spec",
    "StandIn",
    "as_module",
    "buffers_kept",
    "copy_of",
    "values_kept",
    "with_other_sizes",
    "user_name",
]

quote_names()

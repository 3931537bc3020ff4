"""A model and its inputs → views of it: the exported graph, the training graphs, the stream of ops
that it runs, the graph of calls that its code makes."""

from torchport.capture.aot.aten_graph import AtenGraph, ops_of
from torchport.capture.aot.capture_graphs import capture_graphs
from torchport.capture.aot.compiled_graphs import recording_backend
from torchport.capture.aot.node_origins import source_lines
from torchport.capture.callable_module import as_module
from torchport.capture.calls.call_graph import CallGraph, capture_calls
from torchport.capture.calls.call_inputs import Argument
from torchport.capture.calls.graph_functions import apply_function, assemble, hold, named
from torchport.capture.calls.recorder import Modes
from torchport.capture.calls.traced_calls import TracedCall
from torchport.capture.calls.value_reads import OnDataDependent
from torchport.capture.calls.varied_inputs import Size, input_sizes, with_other_sizes
from torchport.capture.exported.dynamic_shapes import ANY_BATCH, ANY_SHAPE, ShapeLimits, input_shapes
from torchport.capture.exported.export import CapturedModel, export
from torchport.capture.exported.guards_as_data import guards_of, size_term
from torchport.capture.exported.module_state import ModuleState
from torchport.capture.exported.same_calls import same_calls
from torchport.capture.exported.shared_memory import SharedResult
from torchport.capture.module_calls import ModuleCall
from torchport.capture.node_origin import module_path, modules_around, source_line, user_name
from torchport.capture.quiet import quiet_torch
from torchport.capture.quoted_names import quote_names
from torchport.capture.stream.op_call import OpCall, describe_call, schema_arguments
from torchport.capture.stream.op_stream import Kernel, StreamedOp
from torchport.capture.stream.stream_model import OpStream, stream_ops
from torchport.capture.tensor_specs import tensor_spec
from torchport.capture.untouched import StandIn, buffers_kept, copy_of, values_kept

__all__ = [
    "ANY_BATCH", "ANY_SHAPE", "apply_function", "Argument", "as_module", "assemble", "AtenGraph",
    "buffers_kept", "CallGraph", "capture_calls", "capture_graphs", "CapturedModel", "copy_of",
    "describe_call", "export", "guards_of", "hold", "input_shapes", "input_sizes", "Kernel", "Modes",
    "module_path", "modules_around", "ModuleCall", "ModuleState", "named", "OnDataDependent", "OpCall",
    "ops_of", "OpStream", "quiet_torch", "recording_backend", "same_calls", "schema_arguments", "ShapeLimits",
    "SharedResult", "Size", "size_term", "source_line", "source_lines",
    "StandIn", "stream_ops", "StreamedOp", "tensor_spec", "TracedCall",
    "user_name", "values_kept", "with_other_sizes",
]  # fmt: skip

quote_names()

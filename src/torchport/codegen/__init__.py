"""A model and its inputs → a graph of the calls that it makes → one readable Python file and its weights."""

from torchport.codegen.trace_graph import TraceGraph, trace_graph
from torchport.codegen.tracer import model_tracer
from torchport.codegen.write_model import write_model

__all__ = ["TraceGraph", "model_tracer", "trace_graph", "write_model"]

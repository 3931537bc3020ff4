"""`with model_tracer(): graph = trace(model, dummy_input)`, and `graph.generate_code(…)`."""

from torchport.codegen import TraceGraph, model_tracer
from torchport.codegen.tracer import trace

__all__ = ["TraceGraph", "model_tracer", "trace"]

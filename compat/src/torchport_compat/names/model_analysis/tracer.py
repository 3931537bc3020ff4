"""A model as a graph of `torch.fx`."""

from torchport.codegen import TraceGraph, trace_graph

__all__ = ["TraceGraph", "trace_graph"]

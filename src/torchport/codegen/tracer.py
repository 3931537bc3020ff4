"""`with model_tracer(): graph = trace(model, inputs)`: the tracer as a context manager."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from torchport.codegen.trace_graph import TraceGraph, trace_graph


@contextlib.contextmanager
def model_tracer() -> Iterator[None]:
    """Open a block in which to trace models.

    The block itself has no effect: models may be created inside or outside, and any number can be traced.

    Example:
        >>> with model_tracer():
        ...     graph = trace(torch.nn.Sequential(torch.nn.Linear(2, 3)), torch.ones(1, 2))
    """
    yield


def trace(model: nn.Module, dummy_input: torch.Tensor | Sequence[object]) -> TraceGraph:
    """Trace a model on one or several inputs; the same as `torchport.trace_graph`."""
    return trace_graph(model, dummy_input)

"""Calls a graph from a file: any exception from it becomes one of torchport's that names the op."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from torch import fx

from torchport.errors import RuntimeRefusal, TorchportError, one_line
from torchport.targets.graph_json import name_of_op
from torchport.targets.target import OutOfRange


def graph_call(graph_module: fx.GraphModule, where: str) -> Callable[..., Any]:
    """Return a function that runs the graph, and raises only torchport's errors and `OutOfRange`.

    Args:
        graph_module: the graph, as `decode_graph` returns it.
        where: the model or target, for the error.
    """
    forward = graph_module.forward  # calling the module itself would print any error

    def call(*arguments: object) -> Any:
        try:
            return forward(*arguments)
        except (TorchportError, OutOfRange):
            raise
        except Exception as error:  # ops raise several classes
            raise RuntimeRefusal(
                f"{_what_raised(graph_module, error)} raised {one_line(error)}",
                where=where,
                remedy="check the inputs, or get the file again",
            ) from error

    return call


def _what_raised(graph_module: fx.GraphModule, error: Exception) -> str:
    """Return the op at the line of the generated code at which an exception passed: a line calls one node."""
    code, lines = type(graph_module).forward.__code__, graph_module.code.splitlines()
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code is code and number <= len(lines):
            name = lines[number - 1].split("=")[0].strip()
            for node in graph_module.graph.nodes:
                if node.name == name and node.op in ("call_function", "call_module"):
                    return "an island" if node.op == "call_module" else name_of_op(node.target)
    return "the graph"

"""Reads the tensors that a program's host graph holds, and refuses other graphs, which no file can hold."""

from __future__ import annotations

import torch
from torch import fx

from torchport.errors import PackageError


def graph_tensors(graph_module: fx.GraphModule, model: str) -> dict[str, torch.Tensor]:
    """Return a graph's tensors by name.

    Raises:
        PackageError: the graph holds another one, such as a branch of `torch.cond`.
    """
    found = {}
    for node in graph_module.graph.nodes:
        if node.op != "get_attr":
            continue
        held = getattr(graph_module, str(node.target))
        if not isinstance(held, torch.Tensor):
            callers = ", ".join(sorted({str(user.target) for user in node.users}))
            raise PackageError(
                f"the model calls {callers}, whose branch or body is a graph of its own",
                where=model,
                remedy="run the compiled model without saving it, or write the model without this op, for "
                "example with torch.where",
            )
        found[str(node.target)] = held
    return found

"""Runs a captured graph node by node, to look at its values."""

from __future__ import annotations

from typing import Any

from torch import fx, nn


class NodeByNode(fx.Interpreter):
    """Runs a graph on tensors; what is derived from it looks at each node.

    fx's own class tells the whole process which node is running, and what another thread captures meanwhile
    takes this for its own. That class is right for a run that is captured itself, and for no other.

    Args:
        module: what holds the graph's tensors.
        graph: the graph, if it is not the module's.
        garbage_collect_values: forget a value after its last use.
    """

    def __init__(
        self, module: nn.Module, *, graph: fx.Graph | None = None, garbage_collect_values: bool = True
    ) -> None:
        super().__init__(module, garbage_collect_values, graph)
        self.extra_traceback = False  # what the model raises is raised as it is

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

"""Runs a captured graph node by node, to inspect its values."""

from __future__ import annotations

from typing import Any

from torch import fx, nn


class NodeByNode(fx.Interpreter):
    """Runs a graph on tensors; subclasses inspect each node.

    fx's own class stores the running node in process-wide state, which a capture in another thread would take
    for its own. That class is right only for a run that is itself captured.

    Args:
        module: the module that holds the graph's tensors.
        graph: the graph, if it is not the module's.
        garbage_collect_values: drop a value after its last use.
    """

    def __init__(
        self, module: nn.Module, *, graph: fx.Graph | None = None, garbage_collect_values: bool = True
    ) -> None:
        super().__init__(module, garbage_collect_values, graph)
        self.extra_traceback = False  # errors of the model are raised unchanged

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

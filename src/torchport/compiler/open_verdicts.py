"""Verdicts on the ops of a graph with open sizes: they hold for all sizes, or say why not.

The target judges copies of the graph specialized to the extreme sizes and some in between, like any graph of
fixed sizes. It also says whether it can build the op for open sizes at all.
"""

from __future__ import annotations

import torch
from torch import fx

from torchport.compiler.open_sizes import NotOpen, OpenSizes
from torchport.records import SUPPORTED, Verdict
from torchport.targets import Options, Target
from torchport.targets.open_sizes import copy_for_sizes, has_open_sizes
from torchport.targets.size_terms import is_size
from torchport.targets.value_ranges import merge_ranges


class OpenVerdicts:
    """Collects a target's verdicts on the ops of a graph with open sizes.

    Args:
        graph_module: the graph, after `name_sizes`.
        sizes: which sizes are open.
        target, options: the target that judges.
    """

    def __init__(
        self, graph_module: fx.GraphModule, sizes: OpenSizes, target: Target, options: Options
    ) -> None:
        self._sizes = sizes
        self._target = target
        self._options = options
        self._copies: list[dict[fx.Node, fx.Node]] = []
        for choice in sizes.choices:
            try:
                copy, nodes = copy_for_sizes(graph_module, choice)
            except RuntimeError:  # a size would be negative: the guards rule that out
                if sizes.allows(choice):
                    raise
                continue
            target.prepare(copy)
            self._copies.append(nodes)
        if not self._copies:
            raise NotOpen("the model accepts none of the extreme sizes")
        merge_ranges(graph_module, self._copies)

    def unknown(self, node: fx.Node) -> str:
        """Return a message if a node's sizes or numbers depend on data or are not integers; else empty."""
        for value in (*[source.meta.get("val") for source in node.all_input_nodes], node.meta.get("val")):
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(item, (torch.SymFloat, torch.SymBool)):
                    return "a number in it is known at run time only"
                if isinstance(item, torch.SymInt) and not self._sizes.is_known(item):
                    return "a number in it is known at run time only"
                if isinstance(item, torch.Tensor) and item.layout is torch.strided:
                    numbers = (*item.shape, *item.stride(), item.storage_offset())
                    if not all(map(self._sizes.is_known, numbers)):
                        return "a shape in it is known at run time only"
        return ""

    def verdict(self, node: fx.Node) -> Verdict:
        """Return whether the target computes a node as torch does, for all sizes."""
        if _is_open(node):
            verdict = self._target.open_verdict(node, self._options)
            if not verdict.ok:
                return verdict
        for copies in self._copies:
            verdict = self._target.verdict(copies[node], self._options)
            if not verdict.ok:
                return verdict
        return SUPPORTED


def _is_open(node: fx.Node) -> bool:
    """Whether a node's tensors or arguments have open sizes."""
    values = [source.meta.get("val") for source in (*node.all_input_nodes, node)]
    return any(map(is_size, node.all_input_nodes)) or any(map(has_open_sizes, values))

"""Verdicts → islands: the largest subgraphs that a target can take whole.

A node's level is the number of times that the data on the way to it crossed from host to device. All nodes of
one level that the target takes form one island: a path that leaves it and comes back would have raised the
level, so the island is convex. It takes one pass.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import fx

from torchport.compiler.normalise import is_op
from torchport.records import Verdict
from torchport.targets.size_terms import is_size
from torchport.torch_private import OpOverload


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Which node runs where, and when.

    Args:
        islands: for each level, the nodes that the target takes, in order.
        host: for each level, the nodes that stay, in order; they run after that level's island.
    """

    islands: dict[int, list[fx.Node]]
    host: dict[int, list[fx.Node]]

    @property
    def levels(self) -> list[int]:
        """All levels, in the order in which they run."""
        return sorted(self.islands.keys() | self.host.keys())


def partition(graph: fx.Graph, verdicts: dict[fx.Node, Verdict], min_size: int = 1) -> Partition:
    """Cut a graph into islands and the rest.

    Args:
        graph: the graph.
        verdicts: the verdict on each op; changed in place for islands that are too small.
        min_size: islands with fewer ops stay on the host.
    """
    cut = _cut(graph, verdicts)
    small = [nodes for nodes in cut.islands.values() if sum(map(is_op, nodes)) < min_size]
    if not small:
        return cut
    for nodes in small:
        for node in nodes:
            detail = f"its island has fewer than {min_size} ops"
            verdicts[node] = Verdict(False, "island_too_small", detail, "lower min_island_size")
    return _cut(graph, verdicts)


def _cut(graph: fx.Graph, verdicts: dict[fx.Node, Verdict]) -> Partition:
    level: dict[fx.Node, int] = {}
    on_device: dict[fx.Node, bool] = {}
    islands: dict[int, list[fx.Node]] = defaultdict(list)
    host: dict[int, list[fx.Node]] = defaultdict(list)
    last_ordered = 0
    for node in graph.nodes:
        if node.op != "call_function" or is_size(node):  # sizes are known from the start
            continue
        sources = [source for source in node.all_input_nodes if source in level]
        on_device[node] = _takes(node, verdicts, on_device)
        if on_device[node]:
            level[node] = max([level[source] + (not on_device[source]) for source in sources], default=0)
            islands[level[node]].append(node)
            continue
        level[node] = max([level[source] for source in sources], default=0)
        if _is_ordered(node):
            # Random ops share one generator, so they must run in the order in which they were traced.
            level[node] = last_ordered = max(level[node], last_ordered)
        host[level[node]].append(node)
    return Partition(dict(islands), dict(host))


def _takes(node: fx.Node, verdicts: dict[fx.Node, Verdict], on_device: dict[fx.Node, bool]) -> bool:
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return on_device.get(source, False)
    return node in verdicts and verdicts[node].ok


def _is_ordered(node: fx.Node) -> bool:
    if isinstance(node.target, OpOverload):
        return torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable
    return node.target is not operator.getitem

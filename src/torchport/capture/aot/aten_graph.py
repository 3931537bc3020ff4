"""One graph, as AOTAutograd passes it to a compiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import fx

Direction = Literal["fw", "bw"]


@dataclass(frozen=True, slots=True, eq=False)
class AtenGraph:
    """A functional graph of ATen ops.

    Args:
        direction: `fw` or `bw`, the forward or the backward graph.
        graph_module: the graph. Each node's `meta["val"]` holds its fake tensor.
    """

    direction: Direction
    graph_module: fx.GraphModule

    def parts(self) -> Iterator[fx.GraphModule]:
        """Yield the graph and its nested graphs, which ops such as `cond` call."""
        seen: set[int] = set()
        for module in self.graph_module.modules():
            if isinstance(module, fx.GraphModule) and id(module) not in seen:
                seen.add(id(module))
                yield module


def ops_of(graph_module: fx.GraphModule) -> list[fx.Node]:
    """Return the `call_function` nodes of a graph, in order."""
    return [node for node in graph_module.graph.nodes if node.op == "call_function"]

"""Plan → the record of its graph: every op with its inputs, its source line and where it runs."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Generic, TypeVar

from torch import fx

from torchport.analysis import attributes_of, call_of, cost_of, tensor_types_of
from torchport.capture import modules_around, source_line
from torchport.compiler.normalise import is_op
from torchport.compiler.outline import Piece
from torchport.records import MOST_GRAPH_OPS, GraphModule, GraphOp, ModelGraph, OpKind, Verdict

Item = TypeVar("Item")


class _Distinct(Generic[Item]):
    """A list without duplicates."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._places: dict[Hashable, int] = {}

    def place(self, key: Hashable, item: Item) -> int:
        """Return the index of an item, adding it if it is new."""
        if key not in self._places:
            self._places[key] = len(self.items)
            self.items.append(item)
        return self._places[key]


def record_graph(
    model: str,
    target: str,
    graph: fx.Graph,
    pieces: dict[int, Piece],
    verdicts: dict[fx.Node, Verdict],
) -> ModelGraph:
    """Return the record of a planned graph; the ops are left out if there are too many.

    Args:
        model, target: their names.
        graph, pieces, verdicts: the results of the earlier steps.
    """
    modules, lines, reasons, kinds = (
        _Distinct[GraphModule](),
        _Distinct[str](),
        _Distinct[Verdict](),
        _Kinds(),
    )
    islands = {node: number for number, level in enumerate(sorted(pieces)) for node in pieces[level].nodes}
    nodes = [node for node in graph.nodes if is_op(node)]
    if len(nodes) > MOST_GRAPH_OPS:
        nodes = []
    places = {node: place for place, node in enumerate(nodes)}
    ops = []
    for node in nodes:
        # The enclosing modules are recorded too, with their classes; the last one calls the op.
        module = [
            modules.place(path, GraphModule(path, kind)) for path, kind in modules_around(node) or [("", "")]
        ][-1]
        line = source_line(node)
        verdict = verdicts[node]
        ops.append(
            GraphOp(
                name=node.name,
                kind=kinds.place_of(node),
                module=module,
                sources=_sources(node, places),
                line=lines.place(line, line) if line else -1,
                island=islands.get(node, -1),
                verdict=-1 if verdict.ok else reasons.place(verdict, verdict),
            )
        )
    names = tuple(pieces[level].island.name for level in sorted(pieces))
    return ModelGraph(
        model,
        target,
        tuple(modules.items),
        tuple(lines.items),
        names,
        tuple(reasons.items),
        tuple(kinds.items),
        tuple(ops),
    )


def _sources(node: fx.Node, places: dict[fx.Node, int]) -> tuple[int, ...]:
    """Return the ops whose results a node takes; `getitem` and sizes are replaced by the ops behind them."""
    found: dict[int, None] = {}
    waiting = list(node.all_input_nodes)
    while waiting:
        source = waiting.pop(0)
        if source in places:
            found[places[source]] = None
        elif source.op == "call_function":
            waiting += source.all_input_nodes
    return tuple(found)


class _Kinds(_Distinct[OpKind]):
    def place_of(self, node: fx.Node) -> int:
        """Return the index of an op's kind."""
        call = call_of(node)
        if call is None:
            return self.place(str(node.target), OpKind(str(node.target), {}, {}, 0, 0))
        attributes, types = attributes_of(call), tensor_types_of(call)
        key = json.dumps(
            [str(call.op), attributes, {name: (kind.shape, kind.dtype) for name, kind in types.items()}]
        )
        if key in self._places:
            return self._places[key]
        cost = cost_of(call)
        return self.place(key, OpKind(str(call.op), attributes, types, cost.flops, cost.read + cost.written))

"""Graph and partition → the host's graph, in which each island is one call of `torchport::island`."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import fx

from torchport.capture import size_term
from torchport.compiler.normalise import NormalGraph, is_op
from torchport.compiler.open_sizes import OpenSizes
from torchport.compiler.partition import Partition
from torchport.compiler.views import base_of, strided_view
from torchport.records import TensorSpec
from torchport.runtime.hook import register
from torchport.targets import Island
from torchport.targets.open_sizes import Evaluator, IslandSizes
from torchport.targets.size_terms import add_to_graph, is_size


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """An island with the nodes of the graph that it replaces.

    Args:
        island: what the target builds.
        nodes: the nodes that it replaces.
        inputs: the nodes whose values it takes.
        outputs: the nodes whose values it returns.
        frozen: the attributes whose values are baked into it.
    """

    island: Island
    nodes: list[fx.Node]
    inputs: list[fx.Node]
    outputs: list[fx.Node]
    frozen: list[str]

    @property
    def ops(self) -> list[fx.Node]:
        """The torch ops in it."""
        return [node for node in self.nodes if is_op(node)]


def outline(graph: NormalGraph, cut: Partition, sizes: OpenSizes | None = None) -> dict[int, Piece]:
    """Return the islands by level."""
    return {
        level: make_piece(graph, f"island_{number}", nodes, sizes)
        for number, (level, nodes) in enumerate(sorted(cut.islands.items()))
    }


def make_piece(graph: NormalGraph, name: str, nodes: list[fx.Node], sizes: OpenSizes | None = None) -> Piece:
    """Return the island of some nodes.

    Args:
        graph: the whole graph.
        name: the island's name.
        nodes: the nodes that it replaces, in order.
        sizes: the open sizes, if there are any.
    """
    mutated = {node.target for node in graph.writes if node.op == "get_attr"}
    inside = set(nodes)
    made = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs: list[fx.Node] = []
    frozen: dict[str, torch.Tensor] = {}
    for node in nodes:
        for source in node.all_input_nodes:
            if source in inside or source in copies or is_size(source):
                continue
            if source.op == "get_attr" and source.target not in mutated:
                attribute = str(source.target)
                frozen[attribute] = getattr(graph.graph_module, attribute)
                copies[source] = made.get_attr(attribute)
            else:
                copies[source] = made.placeholder(source.name)
                inputs.append(source)
            copies[source].meta = _described(source)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    described = None
    if sizes is not None:
        places = _show_sizes(graph, made, nodes, outputs, inputs, copies, sizes)
        described = _sizes_of(inputs, outputs, places, sizes)
    for node in nodes:
        copies[node] = made.node_copy(node, copies.__getitem__)
        copies[node].meta = _described(node)
    made.output(tuple(copies[node] for node in outputs))
    island = Island(
        name,
        fx.GraphModule(frozen, _inputs_first(made)),
        tuple(_spec(node, sizes) for node in inputs),
        tuple(_spec(node, sizes) for node in outputs),
        described,
    )
    return Piece(island, nodes, inputs, outputs, list(frozen))


def _show_sizes(
    graph: NormalGraph,
    made: fx.Graph,
    nodes: list[fx.Node],
    outputs: list[fx.Node],
    inputs: list[fx.Node],
    copies: dict[fx.Node, fx.Node],
    sizes: OpenSizes,
) -> dict[object, tuple[int, int]]:
    """Make an island compute the sizes that it needs from those of its inputs.

    If no input of the island has a needed size, an input of the whole graph becomes one of the island's, just
    for its shape.

    Returns:
        Which input has each symbol as a size, in which dimension.
    """
    named = dict.fromkeys(source for node in nodes for source in node.all_input_nodes if is_size(source))
    needed: set[object] = set()
    for size in [
        *[node.meta["val"] for node in named],
        *[size for node in (*inputs, *outputs) for size in node.meta["val"].shape],
    ]:
        needed |= set() if isinstance(size, int) else size.node.expr.free_symbols
    places = _places(inputs)
    placeholders = [node for node in graph.graph_module.graph.nodes if node.op == "placeholder"]
    for symbol in needed - places.keys():
        shown = placeholders[sizes.places[symbol][0]]
        copies[shown] = made.placeholder(shown.name)
        copies[shown].meta = _described(shown)
        inputs.append(shown)
        places = _places(inputs)
    known: dict[str, fx.Node | int] = {}
    for node in named:
        term = size_term(node.meta["val"].node.expr, _terms(places))
        copies[node] = add_to_graph(made, term, [copies[source] for source in inputs], known)  # type: ignore[assignment]  # no number: it has symbols
    return places


def _places(inputs: list[fx.Node]) -> dict[object, tuple[int, int]]:
    """Return which input has each symbol as a size, in which dimension."""
    places: dict[object, tuple[int, int]] = {}
    for index, node in enumerate(inputs):
        for dim, size in enumerate(node.meta["val"].shape):
            if not isinstance(size, int) and size.node.expr.is_symbol:
                places.setdefault(size.node.expr, (index, dim))
    return places


def _terms(places: Mapping[object, tuple[int, int]]) -> dict[str, object]:
    return {str(symbol): ["size", *place] for symbol, place in places.items()}


def _sizes_of(
    inputs: list[fx.Node],
    outputs: list[fx.Node],
    places: Mapping[object, tuple[int, int]],
    sizes: OpenSizes,
) -> IslandSizes | None:
    """Return how the sizes of an island's tensors depend on each other; None if none is open."""
    if not places:
        return None
    terms = _terms(places)
    known = [Evaluator(choice) for choice in sizes.choices]

    def shape(node: fx.Node) -> tuple[object, ...]:
        return tuple(
            size if isinstance(size, int) else size_term(size.node.expr, terms)
            for size in node.meta["val"].shape
        )

    bounds = []
    for node in inputs:
        found = [[each.size(size) for each in known] for size in node.meta["val"].shape]
        bounds.append(tuple((max(min(some), 0), max(some)) for some in found))
    return IslandSizes(tuple(map(shape, inputs)), tuple(map(shape, outputs)), tuple(bounds), sizes.largest)


def _spec(node: fx.Node, sizes: OpenSizes | None) -> TensorSpec:
    """Return the spec of a node's tensor, with the memory order that it has at the largest sizes."""
    value = node.meta["val"]
    if sizes is None:
        return spec_of(value)
    return replace(spec_of(value), order=spec_of(Evaluator(sizes.largest).value(value)).order)  # type: ignore[arg-type]  # a tensor


def _described(node: fx.Node) -> dict[str, object]:
    return dict(node.meta)


def _inputs_first(graph: fx.Graph) -> fx.Graph:
    """Move placeholders to the front, where code that reads graphs expects them."""
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in list(graph.nodes):
        if node.op == "placeholder":
            first.prepend(node)
    return graph


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Return a tensor's spec, with -1 for sizes that are known only at run time."""
    shape = tuple(size if isinstance(size, int) else -1 for size in tensor.shape)
    order = () if -1 in shape or not has_known_strides(tensor) else _memory_order(tensor)
    return TensorSpec(shape, str(tensor.dtype).removeprefix("torch."), order)


def has_known_strides(tensor: torch.Tensor) -> bool:
    """Whether a tensor's strides are known at compile time: they may depend on data."""
    if tensor.layout is not torch.strided:
        return True
    return all(isinstance(number, int) for number in (*tensor.stride(), tensor.storage_offset()))


def _memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the order of a tensor's dimensions in memory; empty if it is contiguous or overlaps itself."""
    if tensor.layout is not torch.strided or tensor.is_contiguous():
        return ()
    strides = tensor.stride()
    if any(stride == 0 and size > 1 for stride, size in zip(strides, tensor.shape, strict=True)):
        return ()
    order = sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], -tensor.shape[dim], dim))
    return () if order == list(range(tensor.dim())) else tuple(order)


def host_graph(
    graph: NormalGraph, cut: Partition, pieces: dict[int, Piece], built: dict[int, tuple[torch.Tensor, str]]
) -> fx.GraphModule:
    """Return the graph that the host runs.

    Args:
        graph: the whole graph.
        cut: what runs where.
        pieces: the islands by level.
        built: each island's payload, and its metadata as JSON.
    """
    register()  # torch's own hook does not if torchport is on the import path but not installed
    made = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    attributes: dict[str, object] = {piece.island.name: built[level][0] for level, piece in pieces.items()}
    for node in graph.graph_module.graph.nodes:
        if node.op == "placeholder":
            copies[node] = made.placeholder(node.name)
    for node in _host_sizes(graph, cut):
        copies[node] = made.node_copy(node, copies.__getitem__)
    # Weights that are written but never read are no longer in the graph.
    unread = [node for node in graph.writes if node.op == "get_attr" and not node.users]
    for node in dict.fromkeys((*graph.graph_module.graph.nodes, *unread)):
        if node.op == "get_attr" and _needed_on_host(node, cut, pieces, graph):
            attributes[str(node.target)] = getattr(graph.graph_module, str(node.target))
            copies[node] = made.get_attr(str(node.target))
    for level in cut.levels:
        if level in pieces:
            _call_island(made, pieces[level], built[level][1], copies)
        for node in cut.host.get(level, []):
            copies[node] = made.node_copy(node, copies.__getitem__)
    values = [_own_memory(made, value, copies[value]) for value in graph.written]
    written = [
        made.call_function(torch.ops.aten.copy_.default, (copies[destination], value))
        for destination, value in zip(graph.writes, values, strict=True)
    ]
    returned = [copies[value] if isinstance(value, fx.Node) else value for value in graph.returned]
    for place, (write, item) in graph.shared.items():
        returned[place] = strided_view(made, written[write], item)
    made.output(tuple(returned))  # type: ignore[arg-type]  # nodes and constants
    return fx.GraphModule(attributes, made, "Program")


def _host_sizes(graph: NormalGraph, cut: Partition) -> list[fx.Node]:
    """Return the sizes that the host's ops need, in order."""
    on_host = {node for nodes in cut.host.values() for node in nodes}
    needed: set[fx.Node] = set()
    found = [node for node in graph.graph_module.graph.nodes if is_size(node)]
    for node in reversed(found):
        if any(user in on_host or user in needed for user in node.users):
            needed.add(node)
    return [node for node in found if node in needed]


def _own_memory(made: fx.Graph, value: fx.Node, copy: fx.Node) -> fx.Node:
    """Return a value, or a copy if an earlier write could change it: two buffers may be swapped."""
    if value.op == "call_function" and base_of(value) is None:
        return copy
    return made.call_function(torch.ops.aten.clone.default, (copy,))


def _needed_on_host(node: fx.Node, cut: Partition, pieces: dict[int, Piece], graph: NormalGraph) -> bool:
    on_host = {user for nodes in cut.host.values() for user in nodes}
    crossing = {source for piece in pieces.values() for source in piece.inputs}
    return (
        node in crossing
        or node in graph.writes
        or any(user in on_host or user.op == "output" for user in node.users)
    )


def _call_island(made: fx.Graph, piece: Piece, meta: str, copies: dict[fx.Node, fx.Node]) -> None:
    blob = made.create_node("get_attr", piece.island.name)
    call = made.call_function(
        torch.ops.torchport.island.default, (blob, meta, [copies[source] for source in piece.inputs])
    )
    for index, node in enumerate(piece.outputs):
        copies[node] = made.call_function(operator.getitem, (call, index))

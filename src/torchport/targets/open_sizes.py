"""Islands for all sizes of some dimensions: how their sizes depend on each other, and copies for some sizes.

A target that takes open sizes builds an island whose tensors have sizes of -1. Its graph computes the
sizes that its ops name: `aten.sym_size.int` on its inputs, and Python's operators on these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from torchport.targets.size_terms import evaluate, is_size

GUARDS = "guards"  # among an island's properties: what must hold of its inputs' sizes
OUTPUT_SIZES = "output_sizes"  # among them: the sizes of its outputs, as terms of its inputs'

Symbols = Mapping[object, int]  # the number that each symbol of torch's stands for


@dataclass(frozen=True, slots=True)
class IslandSizes:
    """How the sizes of an island's tensors depend on each other.

    Args:
        inputs: for each input, its sizes as terms of the inputs' sizes.
        outputs: for each output, likewise.
        bounds: for each input, between which numbers each of its sizes lies.
        largest: the symbols at their largest.
    """

    inputs: tuple[tuple[object, ...], ...]
    outputs: tuple[tuple[object, ...], ...]
    bounds: tuple[tuple[tuple[int, int], ...], ...]
    largest: Symbols = field(repr=False)

    def properties(self) -> dict[str, object]:
        """Return what whoever runs the island must know, as properties of its artefact."""
        guards: list[object] = []
        for index, (terms, bounds) in enumerate(zip(self.inputs, self.bounds, strict=True)):
            for dim, (term, (low, high)) in enumerate(zip(terms, bounds, strict=True)):
                place = ["size", index, dim]
                if low == high:
                    guards.append(["==", place, low])
                elif term == place:
                    guards += [[">=", place, low], ["<=", place, high]]
                else:
                    guards.append(["==", place, term])
        return {OUTPUT_SIZES: [list(terms) for terms in self.outputs], GUARDS: guards}


def output_shapes(
    properties: Mapping[str, object], inputs: Sequence[Sequence[int]]
) -> list[tuple[int, ...]] | None:
    """Return the shapes of an island's outputs for inputs of these shapes; None if they are fixed.

    Raises:
        ValueError, TypeError, IndexError: the property is not as `IslandSizes` writes it.
    """
    sizes = properties.get(OUTPUT_SIZES)
    if sizes is None:
        return None
    if not isinstance(sizes, list) or not all(isinstance(terms, list) for terms in sizes):
        raise ValueError(f"{OUTPUT_SIZES} is not a list of lists")
    return [tuple([evaluate(term, inputs) for term in terms]) for terms in sizes]


class Evaluator:
    """Turns what depends on symbols into numbers, for one choice of them."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._known: dict[object, int] = {}

    def size(self, size: int | torch.SymInt) -> int:
        """Return a size."""
        if isinstance(size, int):
            return size
        expression = size.node.expr  # as torch does not take note that anyone asked
        if expression not in self._known:
            self._known[expression] = int(expression.subs(self._symbols))
        return self._known[expression]

    def knows(self, size: int | torch.SymInt) -> bool:
        """Whether a size depends on nothing but the symbols: not on data."""
        return isinstance(size, int) or size.node.expr.free_symbols <= self._symbols.keys()

    def value(self, value: object) -> object:
        """Return a tensor without values, or several, whose sizes are numbers, unless they depend on data."""
        if isinstance(value, (list, tuple)):
            return type(value)([self.value(item) for item in value])
        if isinstance(value, torch.SymInt):
            return self.size(value) if self.knows(value) else value
        if not isinstance(value, torch.Tensor) or not has_open_sizes(value):
            return value
        if not all(map(self.knows, (*value.shape, *value.stride()))):
            return value
        sizes = [self.size(size) for size in value.shape]
        strides = [self.size(stride) for stride in value.stride()]
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device="meta")


def has_open_sizes(value: object) -> bool:
    """Whether a tensor, or one of several, has a size or a stride that is not a number."""
    if isinstance(value, (list, tuple)):
        return any(map(has_open_sizes, value))
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return any(not isinstance(number, int) for number in (*value.shape, *value.stride()))


def copy_for_sizes(
    graph_module: fx.GraphModule, symbols: Symbols
) -> tuple[fx.GraphModule, dict[fx.Node, fx.Node]]:
    """Return a copy of a graph for one choice of its sizes, and what each node became.

    Its tensors have numbers for sizes, and its calls for arguments: whatever is known of a graph of fixed
    sizes can be asked of it.
    """
    known = Evaluator(symbols)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}

    def copy_of(node: fx.Node) -> fx.Node:
        if is_size(node):
            return known.size(node.meta["val"])  # type: ignore[return-value]  # a number, where fx takes either
        return copies[node]

    for node in graph_module.graph.nodes:
        if not is_size(node):
            copies[node] = graph.node_copy(node, copy_of)
            copies[node].meta = {**node.meta, "val": known.value(node.meta.get("val"))}
    return fx.GraphModule(graph_module, graph), copies

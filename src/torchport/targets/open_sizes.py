"""Islands for all sizes of some dimensions: how their sizes depend on each other, and copies for fixed sizes.

A target that takes open sizes builds an island whose tensors have sizes of -1. Its graph computes the sizes
that its ops use: `aten.sym_size.int` on its inputs, and Python's operators on the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from torchport.targets.size_terms import evaluate, is_size

GUARDS = "guards"  # island property: the conditions on its inputs' sizes
OUTPUT_SIZES = "output_sizes"  # island property: its outputs' sizes, as terms of its inputs' sizes

Symbols = Mapping[object, int]  # the value of each of torch's symbols


@dataclass(frozen=True, slots=True)
class IslandSizes:
    """How the sizes of an island's tensors depend on each other.

    Args:
        inputs: for each input, its sizes as terms of the inputs' sizes.
        outputs: for each output, its sizes likewise.
        bounds: for each input, the bounds of each of its sizes.
        largest: the largest value of each symbol.
    """

    inputs: tuple[tuple[object, ...], ...]
    outputs: tuple[tuple[object, ...], ...]
    bounds: tuple[tuple[tuple[int, int], ...], ...]
    largest: Symbols = field(repr=False)

    def properties(self) -> dict[str, object]:
        """Return what is needed to run the island, as properties of its artefact."""
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
        ValueError, TypeError, IndexError: the property is malformed.
    """
    sizes = properties.get(OUTPUT_SIZES)
    if sizes is None:
        return None
    if not isinstance(sizes, list) or not all(isinstance(terms, list) for terms in sizes):
        raise ValueError(f"{OUTPUT_SIZES} is not a list of lists")
    return [tuple([evaluate(term, inputs) for term in terms]) for terms in sizes]


class Evaluator:
    """Evaluates symbolic sizes for one choice of the symbols' values."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._known: dict[object, int] = {}

    def size(self, size: int | torch.SymInt) -> int:
        """Return the value of a size."""
        if isinstance(size, int):
            return size
        expression = size.node.expr  # reading the expression adds no guard
        if expression not in self._known:
            self._known[expression] = int(expression.subs(self._symbols))
        return self._known[expression]

    def knows(self, size: int | torch.SymInt) -> bool:
        """Whether a size depends only on the symbols, not on data."""
        return isinstance(size, int) or size.node.expr.free_symbols <= self._symbols.keys()

    def value(self, value: object) -> object:
        """Return a value, or several, with open sizes replaced by numbers, unless they depend on data."""
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
    """Return a copy of a graph for one choice of its sizes, and the copy of each node.

    Sizes of its tensors and in arguments of its calls are numbers, so that whatever works on graphs with
    static shapes works on it.
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

"""Finds the sizes that a captured graph leaves open, and writes each as a function of its inputs' sizes.

One program is then for all of them: see docs/decisions/0003-open-sizes.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from torchport.capture import CapturedModel, guards_of, input_shapes, size_term
from torchport.compiler.normalise import NormalGraph
from torchport.compiler.views import is_view_of
from torchport.errors import CaptureError
from torchport.runtime.shape_guards import holds
from torchport.targets.open_sizes import Evaluator, Symbols
from torchport.targets.size_terms import add_to_graph, is_size
from torchport.torch_private import count_size_guards

# Torch takes for granted that an open size is neither 0 nor 1, and does not say so.
_TAKEN_FOR_GRANTED = 2
# Nothing is proved of tensors without elements.
_LEAST = 1
# What an open size is at most where nobody says. Calls beyond it are compiled for by themselves.
_MOST = 2**16
# More would make too many combinations to ask about.
_MOST_SYMBOLS = 3
# How many elements all ops together may give where islands are tried: a second's work or two.
_MOST_TRIED = 2**28
# Where nobody says how large a size is at most, how many times as large as the example's it is tried.
_TIMES_TRIED = 4


class NotOpen(Exception):
    """There is no one program for all sizes, and why."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenSizes:
    """The sizes that a graph leaves open.

    Args:
        ranges: the least and the largest number that each symbol stands for.
        unlimited: the symbols of which nobody says how large they are at most.
        places: which input shows it, in which dimension.
        inputs: the inputs' sizes, as numbers or as sympy's expressions of symbols.
        guards: what holds of the inputs' sizes, as terms.
        unproved: what torch takes for granted of them besides, as terms.
        assumed: how often torch had assumed something of sizes when the graph was captured.
        shared: which results share memory, with which others, in a way that depends on sizes.
    """

    ranges: Mapping[Any, tuple[int, int]]
    unlimited: Collection[Any]
    places: Mapping[Any, tuple[int, int]]
    inputs: Sequence[Sequence[Any]]
    guards: list[object]
    unproved: list[object]
    assumed: int
    shared: Sequence[tuple[int, int | None]] = ()

    @property
    def smallest(self) -> Symbols:
        """The symbols at their smallest."""
        return {symbol: low for symbol, (low, _) in self.ranges.items()}

    @property
    def largest(self) -> Symbols:
        """The symbols at their largest."""
        return {symbol: high for symbol, (_, high) in self.ranges.items()}

    @property
    def choices(self) -> list[Symbols]:
        """The sizes that proofs are made for: all combinations of smallest and largest, and some between.

        That is enough, since what rules prove of numbers grows with the sizes, or does not depend on them.
        """
        ends = itertools.product(*self.ranges.values())
        between = {symbol: math.isqrt(low * high) for symbol, (low, high) in self.ranges.items()}
        return [*[dict(zip(self.ranges, end, strict=True)) for end in ends], between]

    def is_known(self, size: object) -> bool:
        """Whether a size depends on nothing but the inputs' sizes: not on data."""
        return isinstance(size, int) or (
            isinstance(size, torch.SymInt) and size.node.expr.free_symbols <= self.ranges.keys()
        )

    def shapes_at(self, symbols: Symbols) -> list[list[int]]:
        """Return the inputs' shapes for a choice of sizes."""
        return [
            [size if isinstance(size, int) else int(size.subs(symbols)) for size in sizes]
            for sizes in self.inputs
        ]

    def allows(self, symbols: Symbols) -> bool:
        """Whether all guards hold for a choice of sizes."""
        shapes = self.shapes_at(symbols)
        return all(holds(guard, shapes) for guard in self.guards)

    def check_assumptions(self, graph: NormalGraph) -> None:
        """Refuse if torch assumed more of the sizes since: nobody would check it.

        Raises:
            NotOpen: it did.
        """
        if count_size_guards(_a_size(graph.graph_module)) != self.assumed:
            raise NotOpen("torch assumed more of the sizes while it took the model's ops apart")

    def inputs_to_try(
        self, graph_module: fx.GraphModule, leaves: Sequence[torch.Tensor]
    ) -> list[tuple[torch.Tensor, ...]]:
        """Return inputs that islands are tried on: the given ones, and of the smallest and largest sizes.

        If the given ones are of an extreme size, others between are made. Where the largest take too long,
        they are halved.
        """
        given = {symbol: leaves[leaf].shape[dim] for symbol, (leaf, dim) in self.places.items()}
        largest = {
            symbol: min(high, _TIMES_TRIED * given[symbol]) if symbol in self.unlimited else high
            for symbol, (_, high) in self.ranges.items()
        }
        while _elements(graph_module, largest) > _MOST_TRIED and largest != given:
            largest = {symbol: max(size // 2, given[symbol]) for symbol, size in largest.items()}
        between = {symbol: (low + largest[symbol]) // 2 for symbol, (low, _) in self.ranges.items()}
        wanted = [self.smallest, largest]
        wanted = [given, *wanted] if given not in wanted else [given, *wanted, between]
        distinct = [choice for place, choice in enumerate(wanted) if choice not in wanted[:place]]
        found = [self._resized(leaves, choice) for choice in distinct if self.allows(choice)]
        if not found:
            raise NotOpen("the sizes of the example inputs are outside of what one program can be for")
        return found

    def _resized(self, leaves: Sequence[torch.Tensor], symbols: Symbols) -> tuple[torch.Tensor, ...]:
        """Return inputs of other sizes, elements repeated or left out."""
        made = []
        for leaf, shape in zip(leaves, self.shapes_at(symbols), strict=True):
            resized = leaf
            for dim, size in enumerate(shape):
                if size != leaf.shape[dim]:
                    places = torch.arange(size, device=leaf.device)
                    resized = resized.index_select(dim, places % leaf.shape[dim])
            made.append(resized)
        return tuple(made)


def find_open_sizes(captured: CapturedModel) -> OpenSizes:
    """Return the sizes that a model was captured to leave open.

    Raises:
        NotOpen: it leaves none open, or too many; or what torch assumed of them has no form as data.
    """
    if captured.shared:
        raise NotOpen("results share memory in a way that depends on their sizes")
    if captured.result.has_symbols:
        raise NotOpen("a result holds a number that depends on the sizes")
    if any(not leaf.is_contiguous() for leaf in captured.leaves):
        raise NotOpen("an input does not lie in memory element after element")
    inputs: list[list[Any]] = input_shapes(captured.program)
    places: dict[Any, tuple[int, int]] = {}
    for leaf, sizes in enumerate(inputs):
        for dim, size in enumerate(sizes):
            if not isinstance(size, int) and size.is_symbol:
                places.setdefault(size, (leaf, dim))
    expressions = [size for sizes in inputs for size in sizes if not isinstance(size, int)]
    symbols = set().union(*[expression.free_symbols for expression in expressions])
    if not symbols:
        raise NotOpen("the model lets none of its inputs' sizes vary")
    if symbols - places.keys():
        raise NotOpen("an input's size depends on a number that no input has for a size")
    if len(symbols) > _MOST_SYMBOLS:
        raise NotOpen(f"more than {_MOST_SYMBOLS} sizes vary independently")
    limits = captured.program.range_constraints
    ranges, unlimited = {}, []
    for symbol in places:
        low, high = _LEAST, _MOST
        if symbol in limits:
            low = max(low, int(limits[symbol].lower))
        if symbol in limits and limits[symbol].upper < 2**62:
            high = int(limits[symbol].upper)
        else:
            unlimited.append(symbol)
        if low > high:
            raise NotOpen("a size is 0")
        ranges[symbol] = (low, high)
    try:
        guards = guards_of(captured.program)
    except CaptureError as error:
        raise NotOpen(error.what) from error
    unproved: list[object] = []
    for symbol, (low, high) in ranges.items():
        place = ["size", *places[symbol]]
        guards += [[">=", place, low], ["<=", place, high]]
        if low < _TAKEN_FOR_GRANTED:
            unproved.append([">=", place, _TAKEN_FOR_GRANTED])
    assumed = count_size_guards(_a_size(captured.program.graph_module))
    return OpenSizes(ranges, unlimited, places, inputs, guards, unproved, assumed, captured.shared_by_size)


def name_sizes(graph: NormalGraph, sizes: OpenSizes) -> None:
    """Have every size in a graph computed from its inputs' sizes alone, at the start; changes the graph.

    Sizes that depend on data stay as they are.

    Raises:
        NotOpen: a size has no form as data, or results share memory in a way that the graph does not show.
    """
    _check_sharing(graph, sizes)
    nodes = graph.graph_module.graph
    inputs = [node for node in nodes.nodes if node.op == "placeholder"]
    known = {str(symbol): ["size", *place] for symbol, place in sizes.places.items()}
    made: dict[str, fx.Node | int] = {}

    def named(size: Any) -> Any:
        try:
            return add_to_graph(nodes, size_term(size.node.expr, known), inputs, made)
        except CaptureError as error:
            raise NotOpen(error.what) from error

    calls = [node for node in nodes.nodes if node.op == "call_function"]
    with nodes.inserting_before(calls[0]):
        for node in calls:
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt) and sizes.is_known(value):
                _replace(node, named(value))
            elif str(node.target) in _INFERRING and all(map(sizes.is_known, value.shape)):
                written = [
                    given if given != -1 else size if isinstance(size, int) else named(size)
                    for given, size in zip(node.args[1], value.shape, strict=True)
                ]
                node.args = (node.args[0], written, *node.args[2:])
    for node in calls:
        if str(node.target) in _PARTS:
            _take_parts(node)
    nodes.eliminate_dead_code()
    graph.graph_module.recompile()


def _is_shown(one: fx.Node, other: fx.Node) -> bool:
    """Whether the graph shows that two nodes share memory."""
    return one is other or is_view_of(one, other) or is_view_of(other, one)


def _check_sharing(graph: NormalGraph, sizes: OpenSizes) -> None:
    for index, other in sizes.shared:
        ours = graph.returned[index]
        theirs = None if other is None else graph.returned[other]
        if isinstance(ours, fx.Node) and isinstance(theirs, fx.Node) and _is_shown(ours, theirs):
            continue
        raise NotOpen("results share memory in a way that depends on their sizes")


# They take -1 for a size that follows from others, which a device's compiler may not find if those are open.
_INFERRING = frozenset(
    {"aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.expand.default"}
)


# How many results they give follows from a size, which a compiler may not know if others are open.
_PARTS = frozenset({"aten.unbind.int", "aten.split.Tensor", "aten.split_with_sizes.default"})


def _take_parts(node: fx.Node) -> None:
    """Have each result of a node that splits taken by itself, if all sizes along the dimension are fixed."""
    is_unbind = str(node.target) == "aten.unbind.int"
    place = 1 if is_unbind else 2
    dim = node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)
    assert isinstance(dim, int)
    widths = [1 if is_unbind else value.shape[dim] for value in node.meta["val"]]
    if not all(isinstance(width, int) for width in widths):
        return
    starts = list(itertools.accumulate(widths, initial=0))
    for user in list(node.users):
        index = user.args[1]
        assert isinstance(index, int)  # torch's own looks into a tuple
        with node.graph.inserting_before(user):
            if is_unbind:
                part = node.graph.call_function(torch.ops.aten.select.int, (node.args[0], dim, index))
            else:
                ends = (starts[index], starts[index + 1])
                part = node.graph.call_function(torch.ops.aten.slice.Tensor, (node.args[0], dim, *ends))
        part.meta = {**node.meta, "val": user.meta["val"]}
        user.replace_all_uses_with(part)


def _replace(node: fx.Node, size: fx.Node | int) -> None:
    """Have all that uses a node use a size instead."""
    for user in list(node.users):
        user.args, user.kwargs = fx.map_arg(
            (user.args, user.kwargs),
            lambda source: size if source is node else source,
        )


def _a_size(graph_module: fx.GraphModule) -> torch.SymInt:
    """Return some size of a graph that is open."""
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                return size
    raise NotOpen("the graph has no open size")


def _elements(graph_module: fx.GraphModule, symbols: Symbols) -> int:
    """Return how many elements all ops of a graph give, for a choice of sizes."""
    known, total = Evaluator(symbols), 0
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        if (
            node.op == "call_function"
            and isinstance(value, torch.Tensor)
            and all(map(known.knows, value.shape))
        ):
            count = math.prod(known.size(size) for size in value.shape)
            if "scaled_dot_product" in str(node.target):  # which makes a matrix of scores besides
                count *= known.size(node.args[1].meta["val"].shape[-2])
            total += count
    return total


__all__ = ["NotOpen", "OpenSizes", "find_open_sizes", "is_size", "name_sizes"]

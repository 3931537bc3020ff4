"""Finds the open sizes of a captured graph, and expresses each as a function of its inputs' sizes.

One program then serves all of them: see docs/decisions/0003-open-sizes.md.
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
from torchport.errors import CaptureError, one_line
from torchport.runtime.shape_guards import holds
from torchport.targets.open_sizes import Evaluator, Symbols
from torchport.targets.size_terms import add_to_graph, is_size
from torchport.torch_private import count_size_guards

# Torch silently assumes that an open size is at least 2, so neither 0 nor 1.
_ASSUMED_LEAST = 2
# Empty tensors are excluded, since nothing is proved about them.
_LEAST = 1
# The maximum of an open size without a given limit. Calls with larger sizes are compiled separately.
_MOST = 2**16
# More would need verdicts for too many combinations.
_MOST_SYMBOLS = 3
# How many elements all ops together may compute when islands are tried: a second or two of work.
_MOST_TRIED = 2**28
# A size without a given limit is tried at up to this many times the example's.
_TIMES_TRIED = 4


class NotOpen(Exception):
    """No single program works for all sizes; says why."""


def why_not_open(error: Exception) -> str:
    """Return as one line why there is no program for all sizes."""
    return str(error) if isinstance(error, NotOpen) else one_line(error)


@dataclass(frozen=True, slots=True, eq=False)
class OpenSizes:
    """The open sizes of a graph.

    Args:
        ranges: the minimum and maximum of each symbol.
        unlimited: the symbols without a given maximum.
        places: for each symbol, the input that has it as a size, and the dimension.
        inputs: the inputs' sizes, as numbers or as sympy expressions of symbols.
        guards: the guards on the inputs' sizes, as terms.
        unproved: what torch silently assumes about them besides, as terms.
        assumed: the number of torch's size guards when the graph was captured.
        shared: which results share memory with which others, in a way that depends on sizes.
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
        """The sizes to prove verdicts for: all combinations of smallest and largest, and one in between.

        That is enough, since the bounds that rules prove grow with the sizes, or do not depend on them.
        """
        ends = itertools.product(*self.ranges.values())
        between = {symbol: math.isqrt(low * high) for symbol, (low, high) in self.ranges.items()}
        return [*[dict(zip(self.ranges, end, strict=True)) for end in ends], between]

    def is_known(self, size: object) -> bool:
        """Whether a size depends only on the inputs' sizes, not on data."""
        return isinstance(size, int) or (
            isinstance(size, torch.SymInt) and size.node.expr.free_symbols <= self.ranges.keys()
        )

    def shapes_at(self, symbols: Symbols) -> list[list[int]]:
        """Return the inputs' shapes for given sizes."""
        return [
            [size if isinstance(size, int) else int(size.subs(symbols)) for size in sizes]
            for sizes in self.inputs
        ]

    def allows(self, symbols: Symbols) -> bool:
        """Whether all guards hold for given sizes."""
        shapes = self.shapes_at(symbols)
        return all(holds(guard, shapes) for guard in self.guards)

    def check_assumptions(self, graph: NormalGraph) -> None:
        """Check that torch added no size guards since the capture: nothing would check them at run time.

        Raises:
            NotOpen: torch did.
        """
        if count_size_guards(_a_size(graph.graph_module)) != self.assumed:
            raise NotOpen("torch added guards on the sizes while it decomposed the model")

    def inputs_to_try(
        self, graph_module: fx.GraphModule, leaves: Sequence[torch.Tensor]
    ) -> list[tuple[torch.Tensor, ...]]:
        """Return the inputs to try islands on: the given ones, and some of the smallest and largest sizes.

        If the given ones have extreme sizes, others in between are added. If the largest take too long, their
        sizes are halved.
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
            raise NotOpen("the sizes of the example inputs are outside the range of one program")
        return found

    def _resized(self, leaves: Sequence[torch.Tensor], symbols: Symbols) -> tuple[torch.Tensor, ...]:
        """Resize inputs, repeating or dropping elements."""
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
    """Return the open sizes of a captured model.

    Raises:
        NotOpen: it has none, or too many; or torch's guards on them cannot be serialized as terms.
    """
    if captured.shared:
        raise NotOpen("results share memory in a way that depends on their sizes")
    if captured.result.has_symbols:
        raise NotOpen("a result holds a number that depends on the sizes")
    if any(not leaf.is_contiguous() for leaf in captured.leaves):
        raise NotOpen("an input is not contiguous")
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
        raise NotOpen("an input's size depends on a symbol that is not itself the size of an input")
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
            raise NotOpen("a size can only be 0")
        ranges[symbol] = (low, high)
    try:
        guards = guards_of(captured.program)
    except CaptureError as error:
        raise NotOpen(error.what) from error
    unproved: list[object] = []
    for symbol, (low, high) in ranges.items():
        place = ["size", *places[symbol]]
        guards += [[">=", place, low], ["<=", place, high]]
        if low < _ASSUMED_LEAST:
            unproved.append([">=", place, _ASSUMED_LEAST])
    assumed = count_size_guards(_a_size(captured.program.graph_module))
    return OpenSizes(ranges, unlimited, places, inputs, guards, unproved, assumed, captured.shared_by_size)


def name_sizes(graph: NormalGraph, sizes: OpenSizes) -> None:
    """Rewrite a graph, in place, to compute every size from its inputs' sizes, before the first op.

    Sizes that depend on data are left unchanged.

    Raises:
        NotOpen: a size cannot be written as a term, or results share memory in a way that the graph does not
            show.
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


# Ops that take -1 for an inferred size, which a device's compiler may not be able to infer from open sizes.
_INFERRING = frozenset(
    {"aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.expand.default"}
)


# Ops whose number of results depends on a size, which a compiler may not know if other sizes are open.
_PARTS = frozenset({"aten.unbind.int", "aten.split.Tensor", "aten.split_with_sizes.default"})


def _take_parts(node: fx.Node) -> None:
    """Replace the results of a splitting op by slices or selects, if sizes along the dimension are fixed."""
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
        assert isinstance(index, int)  # a `getitem` that torch added
        with node.graph.inserting_before(user):
            if is_unbind:
                part = node.graph.call_function(torch.ops.aten.select.int, (node.args[0], dim, index))
            else:
                ends = (starts[index], starts[index + 1])
                part = node.graph.call_function(torch.ops.aten.slice.Tensor, (node.args[0], dim, *ends))
        part.meta = {**node.meta, "val": user.meta["val"]}
        user.replace_all_uses_with(part)


def _replace(node: fx.Node, size: fx.Node | int) -> None:
    """Replace all uses of a node by a size."""
    for user in list(node.users):
        user.args, user.kwargs = fx.map_arg(
            (user.args, user.kwargs),
            lambda source: size if source is node else source,
        )


def _a_size(graph_module: fx.GraphModule) -> torch.SymInt:
    """Return any open size of a graph."""
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                return size
    raise NotOpen("the graph has no open size")


def _elements(graph_module: fx.GraphModule, symbols: Symbols) -> int:
    """Return how many elements all ops of a graph compute, for given sizes."""
    known, total = Evaluator(symbols), 0
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        if (
            node.op == "call_function"
            and isinstance(value, torch.Tensor)
            and all(map(known.knows, value.shape))
        ):
            count = math.prod(known.size(size) for size in value.shape)
            if "scaled_dot_product" in str(node.target):  # which also computes a matrix of scores
                count *= known.size(node.args[1].meta["val"].shape[-2])
            total += count
    return total


__all__ = ["NotOpen", "OpenSizes", "find_open_sizes", "is_size", "name_sizes", "why_not_open"]

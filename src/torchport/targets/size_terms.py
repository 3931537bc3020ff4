"""Numbers and conditions that depend on the sizes of tensors, as data: `["<=", ["size", 0, 1], 8]`.

A term is an integer, `["size", TENSOR, DIMENSION]`, or an operation of `OPERATIONS` on terms.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import fx

OPERATIONS: Mapping[str, Callable[..., int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "max": max,
    "min": min,
    "and": lambda *terms: all(terms),
    "or": lambda *terms: any(terms),
    "not": operator.not_,
}
# The functions that graphs call for them.
_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": torch.sym_max,
    "min": torch.sym_min,
}


def evaluate(term: object, shapes: Sequence[Sequence[int]]) -> int:
    """Return the value of a term for tensors of these shapes.

    Raises:
        ValueError, TypeError, IndexError: it is not a valid term for these tensors, as may be in a file.
        ZeroDivisionError: it divides by zero.
    """
    if isinstance(term, int):
        return term
    if not isinstance(term, list) or not term or not isinstance(term[0], str):
        raise ValueError(f"{str(term)[:80]!r} is not a valid term")
    head, *rest = term
    if head == "size":
        return shapes[rest[0]][rest[1]]
    if head not in OPERATIONS:
        raise ValueError(f"{str(term)[:80]!r} is not a valid term")
    return OPERATIONS[head](*[evaluate(part, shapes) for part in rest])


def operations_of(term: object) -> set[str]:
    """Return the operations that a term uses."""
    if not isinstance(term, list) or term[0] == "size":
        return set()
    return {term[0]}.union(*map(operations_of, term[1:]))


def add_to_graph(
    graph: fx.Graph, term: object, inputs: Sequence[fx.Node], made: dict[str, fx.Node | int]
) -> fx.Node | int:
    """Add nodes that compute a term to a graph; return the last node, or the number if the term is one.

    Args:
        graph: the graph.
        term: the term, a number rather than a condition.
        inputs: the nodes of the tensors whose sizes it depends on.
        made: the nodes added so far, by their terms.
    """
    key = repr(term)
    if key not in made:
        made[key] = _add(graph, term, inputs, made)
    return made[key]


def _add(
    graph: fx.Graph, term: object, inputs: Sequence[fx.Node], made: dict[str, fx.Node | int]
) -> fx.Node | int:
    if isinstance(term, int):
        return term
    assert isinstance(term, list)
    head, *rest = term
    if head == "size":
        source, dim = inputs[rest[0]], rest[1]
        node = graph.call_function(torch.ops.aten.sym_size.int, (source, dim))
        node.meta["val"] = source.meta["val"].shape[dim]
    else:
        parts = [add_to_graph(graph, part, inputs, made) for part in rest]
        node = graph.call_function(_FUNCTIONS[head], tuple(parts))
        values = [part.meta["val"] if isinstance(part, fx.Node) else part for part in parts]
        node.meta["val"] = _FUNCTIONS[head](*values)
    node.meta[SIZE] = term
    return node


SIZE = "torchport_size"  # key of the term that a node computes, in its metadata


def is_size(node: fx.Node) -> bool:
    """Whether a node computes a size from the sizes of its graph's inputs."""
    return SIZE in node.meta

"""Whether a graph of any shape does, for one shape, what a capture for that shape does: the same calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy  # type: ignore[import-untyped]  # has no types
import torch
from torch import fx
from torch.export import ExportedProgram

from torchport.capture.exported.dynamic_shapes import input_shapes

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def same_calls(general: ExportedProgram, static: ExportedProgram, leaves: Sequence[torch.Tensor]) -> bool:
    """Whether two captures of a model make the same calls on inputs of one shape.

    Args:
        general: captured for any shape.
        static: captured for the shape of `leaves`.
        leaves: the inputs.
    """
    values: dict[object, int] = {}
    for shape, leaf in zip(input_shapes(general), leaves, strict=True):
        for size, number in zip(shape, leaf.shape, strict=True):
            if not isinstance(size, int):
                values.setdefault(size, number)
    return _calls(general.graph, values) == _calls(static.graph, {})


def _calls(graph: fx.Graph, values: Mapping[object, int]) -> list[object]:
    """Return the calls that compute tensors, in order; numbers in them are those for these sizes."""
    places: dict[fx.Node, object] = {}

    def known(node: fx.Node) -> object:
        value = node.meta.get("val")
        if isinstance(value, _SYMBOLS):
            return value.node.expr.subs(values)
        return places[node]

    calls: list[object] = []
    for node in graph.nodes:
        places[node] = ("place", len(places) if node.op != "placeholder" else node.name)
        value = node.meta.get("val")
        if node.op == "output" or (
            node.op == "call_function" and value is not None and not _is_number(value)
        ):
            arguments = fx.map_arg((node.args, node.kwargs), known)  # type: ignore[arg-type]  # values, not nodes
            places[node] = ("place", len(calls))
            calls.append((str(node.target), _plain(arguments)))
    return calls


def _is_number(value: object) -> bool:
    return isinstance(value, (*_SYMBOLS, int, float, bool))


def _plain(value: object) -> object:
    """Return arguments that compare as numbers do, whether sympy's or Python's."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, sympy.Basic):
        return bool(value) if value in (sympy.true, sympy.false) else float(value)
    return value

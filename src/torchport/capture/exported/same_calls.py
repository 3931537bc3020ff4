"""Checks whether a dynamic-shape graph makes the same calls, for one shape, as a capture for that shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy  # type: ignore[import-untyped]  # has no types
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.fx.node import Argument

from torchport.capture.exported.dynamic_shapes import input_shapes
from torchport.torch_private import has_kernel

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def same_calls(general: ExportedProgram, static: ExportedProgram, leaves: Sequence[torch.Tensor]) -> bool:
    """Whether two captures of a model make the same calls on inputs of one shape.

    Args:
        general: the model captured with dynamic shapes.
        static: the model captured for the shapes of `leaves`.
        leaves: the tensors of the inputs.
    """
    values: dict[object, int] = {}
    for shape, leaf in zip(input_shapes(general), leaves, strict=True):
        for size, number in zip(shape, leaf.shape, strict=True):
            if not isinstance(size, int):
                values.setdefault(size, number)
    return _calls(general.graph, values) == _calls(static.graph, {})


def _calls(graph: fx.Graph, values: Mapping[object, int]) -> list[object]:
    """Return the calls that compute tensors, in order, with the given sizes substituted."""
    places: dict[fx.Node, object] = {}
    copies = _copies(graph)

    def known(node: fx.Node) -> object:
        value = node.meta.get("val")
        if isinstance(value, _SYMBOLS):
            return value.node.expr.subs(values)
        return places[node]

    calls: list[object] = []
    for node in graph.nodes:
        if node in copies:
            places[node] = places[node.args[0]]
            continue
        places[node] = ("place", len(places) if node.op != "placeholder" else node.name)
        value = node.meta.get("val")
        if node.op == "output" or (
            node.op == "call_function" and value is not None and not _is_number(value)
        ):
            arguments = fx.map_arg((_arguments(node), node.kwargs), known)  # type: ignore[arg-type]  # values, not nodes
            places[node] = ("place", len(calls))
            calls.append((str(node.target), _plain(arguments)))
    return calls


def _arguments(node: fx.Node) -> list[Argument]:
    """Return a call's arguments; the start of a slice is 0 if it is None."""
    arguments = list(node.args)
    if node.target is torch.ops.aten.slice.Tensor and len(arguments) > 2 and arguments[2] is None:
        arguments[2] = 0
    return arguments


def _copies(graph: fx.Graph) -> set[fx.Node]:
    """Return the `contiguous` calls whose effect is unobservable, whether or not they copy.

    For a size of 1, a tensor may happen to be contiguous already, so that there is no copy. The difference is
    observable only if something is written in place, or if the copy is a result, which would alias a tensor.
    """
    nodes = list(graph.nodes)
    if any(_writes(node) for node in nodes):
        return set()
    returned: set[fx.Node] = set(nodes[-1].all_input_nodes)
    for node in reversed(nodes):
        if node in returned and (_is_contiguous(node) or _is_view(node)):
            returned.update(node.all_input_nodes)
    return {node for node in nodes if _is_contiguous(node) and node not in returned}


def _is_contiguous(node: fx.Node) -> bool:
    return node.target is torch.ops.aten.contiguous.default and len(node.args) == 1 and not node.kwargs


def _writes(node: fx.Node) -> bool:
    """Whether a call may change a tensor's values."""
    schema = getattr(node.target, "_schema", None)
    is_detaching = node.target is torch.ops.aten.detach_.default  # applied to constants in the model's code
    return schema is not None and schema.is_mutable and not is_detaching


def _is_view(node: fx.Node) -> bool:
    """Whether a result may share memory with an operand."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return node.op == "call_function"  # not a torch op: nothing is known about it
    if any(result.alias_info is not None for result in schema.returns):
        return True
    # Composite ops do not always declare aliasing: dropout returns its input if it drops nothing.
    shapes = [_shape(one) for one in node.all_input_nodes]
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    return has_kernel(name, "CompositeImplicitAutograd") and _shape(node) in shapes


def _shape(node: fx.Node) -> object:
    value = node.meta.get("val")
    return list(value.shape) if isinstance(value, torch.Tensor) else None


def _is_number(value: object) -> bool:
    return isinstance(value, (*_SYMBOLS, int, float, bool))


def _plain(value: object) -> object:
    """Return arguments with sympy numbers converted to Python numbers, so that they compare as equal."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, sympy.Basic):
        return bool(value) if value in (sympy.true, sympy.false) else float(value)
    return value

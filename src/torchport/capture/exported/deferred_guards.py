"""Guards on open sizes that hold for all sizes, though torch does not see it.

torch.export refuses an open size if a guard on it might not hold for all its values. Older releases do not
order multiples of a size: after a transposition, `min(4*s, 8*s) == 4*s` is such a guard. torch can write the
guards into the graph as assertions instead; those that always hold are removed here.
"""

from __future__ import annotations

import sympy  # type: ignore[import-untyped]  # has no types
import torch
from torch import fx
from torch.export import ExportedProgram

_ASSERT = "aten._assert_scalar.default"
_FIRST = {"Min": min, "Max": max}


def remove_assertions(program: ExportedProgram) -> bool:
    """Remove the assertions that hold for all sizes from a graph, and return whether these were all."""
    graph = program.graph
    assertions = [node for node in graph.nodes if str(node.target) == _ASSERT]
    if not all(map(_always_holds, assertions)):
        return False
    for node in assertions:
        graph.erase_node(node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    return True


def _always_holds(assertion: fx.Node) -> bool:
    condition = assertion.args[0]
    value = condition.meta.get("val") if isinstance(condition, fx.Node) else condition
    if not isinstance(value, torch.SymBool):
        return value is True
    return _in_order(value.node.expr) is sympy.true


def _in_order(expression: sympy.Basic) -> sympy.Basic:
    """Replace each minimum and maximum of multiples of one positive expression by the one that it is."""
    parts = [_in_order(part) for part in expression.args]
    first = _FIRST.get(type(expression).__name__)
    if first is not None:
        factors = [sympy.cancel(part / parts[0]) for part in parts]
        if parts[0].is_positive and all(factor.is_Rational for factor in factors):
            return parts[factors.index(first(factors))]
    return expression.func(*parts) if parts else expression

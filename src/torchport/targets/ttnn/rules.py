"""The registry of ops that are lowered to ttnn, with their rules: used for verdicts and for building."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from torchport.targets.rule_target import Kinds, Rules
from torchport.targets.rule_target import Rule as BaseRule
from torchport.targets.ttnn.lowering import Lowering, Results, arguments, packet
from torchport.targets.ttnn.refusal import refuse

Given = dict[str, Any]  # an op's arguments by their names, defaults filled in
Lower = Callable[[Lowering, fx.Node, Given], Results]

_MOVING = frozenset(  # ops that only move or convert elements
    """
    _to_copy clone view _unsafe_view reshape unsqueeze squeeze permute transpose t expand repeat slice select
    cat
    """.split()
)


@dataclass(frozen=True, slots=True)
class Rule(BaseRule):
    """How an op is lowered.

    Args:
        lower: adds the op's calls, given its arguments by name; returns its value or values, and refuses
            arguments that ttnn does not support.
        on_images: whether its first operand is needed with channels last; an input read only by such ops is
            transferred in that form.
        fuses: whether an activation that follows can be fused into it.
        activation: ttnn's name for the op as a fused activation: a string, or a function of the node that
            returns one; empty if it cannot be fused.
        by_matrices: whether it is lowered to products with matrices: their zeros turn an infinite element
            into NaN, and spread NaN to other elements. With NaN in a result the call runs with eager torch,
            but another op of the program could hide it.
    """

    KINDS: ClassVar[Kinds] = {**BaseRule.KINDS, "f": frozenset({torch.float32, torch.bfloat16})}

    lower: Lower
    on_images: bool = False
    fuses: bool = False
    activation: str | Callable[[fx.Node], str] = ""
    by_matrices: Callable[[fx.Node], bool] | None = None

    def lowered(self, lowering: Lowering, node: fx.Node) -> Results:
        """Lower a call of the op."""
        if _hides_nan(node) and any(map(_makes_nan, _float_sources(node))):
            refuse("argument", "it would hide that a product with zeros turned an infinite element into NaN")
        return self.lower(lowering, node, arguments(node))

    def activation_of(self, node: fx.Node) -> str:
        """Return ttnn's name for the op as a fused activation; empty if it cannot be fused."""
        return self.activation(node) if callable(self.activation) else self.activation


RULES: Rules[Rule] = Rules()


def lowers(
    names: str,
    kinds: str,
    *,
    on_images: bool = False,
    fuses: bool = False,
    activation: str | Callable[[fx.Node], str] = "",
    by_matrices: Callable[[fx.Node], bool] | None = None,
) -> Callable[[Lower], Lower]:
    """Register a lowering for ops, written as `add.Tensor relu.default …`; see `Rule`."""

    def register(lower: Lower) -> Lower:
        RULES.add(names, Rule(kinds, lower, on_images, fuses, activation, by_matrices))
        return lower

    return register


def _hides_nan(node: fx.Node) -> bool:
    """Whether an op's result for NaN is a number: those of comparisons and conversions are."""
    return not _is_float(node) or packet(node) == "sign"


def _makes_nan(node: fx.Node) -> bool:
    """Whether an op's lowering may return NaN where torch does not."""
    rule = RULES.get(str(node.target))
    if rule is None or rule.by_matrices is None or not rule.by_matrices(node):
        return False
    return not all(map(_is_finite, node.all_input_nodes))


def _float_sources(node: fx.Node) -> list[fx.Node]:
    """Return the floats that a value is computed from, directly or through other floats."""
    pending, seen = [node], {node}
    for each in pending:
        new = [source for source in each.all_input_nodes if source not in seen and _is_float(source)]
        seen.update(new)
        pending += new
    return pending[1:]


def _is_finite(node: fx.Node) -> bool:
    """Whether all elements of a value are certainly finite, since they were integers or booleans."""
    pending = [node]
    for each in pending:
        if _is_float(each):
            if each.op != "call_function" or each.target is operator.getitem or packet(each) not in _MOVING:
                return False
            pending += each.all_input_nodes
    return True


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return any(isinstance(item, torch.Tensor) and item.is_floating_point() for item in values)

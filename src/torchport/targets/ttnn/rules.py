"""Which ops are lowered to ttnn, and all that is known of each: one registry, for verdicts and lowerings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from torchport.targets.rule_target import Kinds, Rules
from torchport.targets.rule_target import Rule as BaseRule
from torchport.targets.ttnn.lowering import Lowering, Results, arguments

Given = dict[str, Any]  # an op's arguments by their names, defaults filled in
Lower = Callable[[Lowering, fx.Node, Given], Results]


@dataclass(frozen=True, slots=True)
class Rule(BaseRule):
    """How an op is lowered.

    Args:
        lower: adds its calls, given its arguments by name; returns its value or values, and refuses what ttnn
            cannot honour.
        on_images: whether its first operand is wanted with channels last; an input that only such ops read
            crosses so.
        fuses: whether an activation behind it can be computed along with it.
        activation: how ttnn names the op where another computes it along: a text, or a function of the node
            that gives one; empty if none can.
    """

    KINDS: ClassVar[Kinds] = {**BaseRule.KINDS, "f": frozenset({torch.float32, torch.bfloat16})}

    lower: Lower
    on_images: bool = False
    fuses: bool = False
    activation: str | Callable[[fx.Node], str] = ""

    def lowered(self, lowering: Lowering, node: fx.Node) -> Results:
        """Lower a call of the op."""
        return self.lower(lowering, node, arguments(node))

    def activation_of(self, node: fx.Node) -> str:
        """Return how ttnn names a call of the op; empty if no other op computes it along."""
        return self.activation(node) if callable(self.activation) else self.activation


RULES: Rules[Rule] = Rules()


def lowers(
    names: str,
    kinds: str,
    *,
    on_images: bool = False,
    fuses: bool = False,
    activation: str | Callable[[fx.Node], str] = "",
) -> Callable[[Lower], Lower]:
    """Register a lowering for ops, written as `add.Tensor relu.default …`; see `Rule`."""

    def register(lower: Lower) -> Lower:
        RULES.add(names, Rule(kinds, lower, on_images, fuses, activation))
        return lower

    return register

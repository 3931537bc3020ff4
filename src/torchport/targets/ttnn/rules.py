"""The registry of ops that are lowered to ttnn, with their rules: used for verdicts and for building."""

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
        lower: adds the op's calls, given its arguments by name; returns its value or values, and refuses
            arguments that ttnn does not support.
        on_images: whether its first operand is needed with channels last; an input read only by such ops is
            transferred in that form.
        fuses: whether an activation that follows can be fused into it.
        activation: ttnn's name for the op as a fused activation: a string, or a function of the node that
            returns one; empty if it cannot be fused.
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
) -> Callable[[Lower], Lower]:
    """Register a lowering for ops, written as `add.Tensor relu.default …`; see `Rule`."""

    def register(lower: Lower) -> Lower:
        RULES.add(names, Rule(kinds, lower, on_images, fuses, activation))
        return lower

    return register

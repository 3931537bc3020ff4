"""Which ATen ops are lowered to ttnn, and how: one registry, which is the verdict and the lowering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from torchport.targets.rule_target import Kinds, Rules
from torchport.targets.rule_target import Rule as BaseRule
from torchport.targets.ttnn.lowering import Lowering, Results

Lower = Callable[[Lowering, fx.Node], Results]


@dataclass(frozen=True, slots=True)
class Rule(BaseRule):
    """How an op is lowered.

    Args:
        lower: adds its calls, and returns its value or values; refuses what ttnn cannot honour.
    """

    KINDS: ClassVar[Kinds] = {**BaseRule.KINDS, "f": frozenset({torch.float32, torch.bfloat16})}

    lower: Lower


RULES: Rules[Rule] = Rules()


def lowers(names: str, kinds: str) -> Callable[[Lower], Lower]:
    """Register a lowering for ops, written as `add.Tensor relu.default …`."""

    def register(lower: Lower) -> Lower:
        RULES.add(names, Rule(kinds, lower))
        return lower

    return register

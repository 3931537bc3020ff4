"""Which ATen ops are lowered to ttnn, and how: one registry, which is the verdict and the lowering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx

from torchport.targets.ttnn.lowering import Lowering, Results

Lower = Callable[[Lowering, fx.Node], Results]

KINDS: dict[str, frozenset[torch.dtype]] = {
    "f": frozenset({torch.float32, torch.bfloat16}),
    "i": frozenset({torch.int64, torch.int32}),
    "b": frozenset({torch.bool}),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """How an op is lowered.

    Args:
        kinds: what its tensors may hold: `f` floats, `i` integers, `b` booleans.
        lower: adds its calls, and returns its value or values; refuses what ttnn cannot honour.
    """

    kinds: str
    lower: Lower

    @property
    def dtypes(self) -> frozenset[torch.dtype]:
        """The dtypes that the op's tensors may have."""
        return frozenset().union(*[KINDS[kind] for kind in self.kinds])


RULES: dict[str, Rule] = {}


def lowers(names: str, kinds: str) -> Callable[[Lower], Lower]:
    """Register a lowering for ops, written as `add.Tensor relu.default …`."""

    def register(lower: Lower) -> Lower:
        for name in names.split():
            full = f"aten.{name}"
            assert full not in RULES, f"two rules for {full}"
            RULES[full] = Rule(kinds, lower)
        return lower

    return register

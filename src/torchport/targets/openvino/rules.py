"""Which ATen ops OpenVINO computes as torch does, and under which conditions: one registry.

An op that has no rule here is taken apart by torch's decompositions, or stays on the host. OpenVINO's
frontend lowers more ops than stand here; those gave other results than torch on torch's own samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx

from torchport.records import Verdict

Check = Callable[[fx.Node], "Verdict | None"]

FLOATS = frozenset({torch.float32})
INTEGERS = frozenset({torch.int64, torch.int32})
BOOLS = frozenset({torch.bool})
KINDS = {"f": FLOATS, "i": INTEGERS, "b": BOOLS}


@dataclass(frozen=True, slots=True)
class Rule:
    """How far an op is supported.

    Args:
        kinds: what its tensors may hold: `f` floats, `i` integers, `b` booleans.
        check: says what is wrong with this call, if something is.
    """

    kinds: str
    check: Check | None = None

    @property
    def dtypes(self) -> frozenset[torch.dtype]:
        """The dtypes that the op's tensors may have."""
        return frozenset().union(*[KINDS[kind] for kind in self.kinds])


RULES: dict[str, Rule] = {}


def takes(names: str, kinds: str, check: Check | None = None) -> None:
    """Register ops, written as `add.Tensor relu.default …`."""
    for name in names.split():
        full = f"aten.{name}"
        assert full not in RULES, f"two rules for {full}"
        RULES[full] = Rule(kinds, check)


def checked(names: str, kinds: str) -> Callable[[Check], Check]:
    """Register ops with a condition, the decorated function: it returns what is wrong, or None."""

    def register(check: Check) -> Check:
        takes(names, kinds, check)
        return check

    return register


def argument(detail: str, remedy: str = "") -> Verdict:
    """Refuse because of an argument."""
    return Verdict(False, "argument", detail, remedy)


def shape(detail: str, remedy: str = "") -> Verdict:
    """Refuse because of a shape."""
    return Verdict(False, "shape", detail, remedy)


def value_of(node: fx.Node, index: int = 0) -> torch.Tensor:
    """Return the fake tensor of a node's argument."""
    source = node.args[index]
    assert isinstance(source, fx.Node)
    tensor = source.meta["val"]
    assert isinstance(tensor, torch.Tensor)
    return tensor


def given(node: fx.Node, index: int, name: str, default: object = None) -> object:
    """Return an argument by position or keyword, or its default."""
    if index < len(node.args):
        return node.args[index]
    return node.kwargs.get(name, default)

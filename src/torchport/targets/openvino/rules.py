"""Which ATen ops OpenVINO computes as torch does, and all that is known of each: one registry.

An op that has no rule here is decomposed by torch, or stays on the host. OpenVINO's
frontend lowers more ops; those gave other results than torch on torch's own samples.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.float_ranges import ANYTHING, Range
from torchport.targets.openvino.float_values import Values
from torchport.targets.rule_target import Check, Kinds, Rules
from torchport.targets.rule_target import Rule as BaseRule
from torchport.verification import HALVES

# The range of an op's float results, from those of what it reads.
Floats = Callable[[fx.Node, Values], Range]


class NaN(Enum):
    """What becomes of NaN on the device: is an operand's kept, and does it arise where torch's does?"""

    # It may get lost: relu gives 0 for it, maximum the other operand, a comparison is false or true.
    LOST = (False, False)
    # Outside its domain the op gives NaN, as torch does; what it is given may get lost.
    MADE = (False, True)
    # An operand's shows in the result. Of numbers that are too large or infinite the result may differ:
    # kernels that add in another order give another infinity, or NaN.
    KEPT = (True, False)
    # The result is NaN just where torch's is: moves, and arithmetic on single elements.
    EXACT = (True, True)

    @property
    def is_kept(self) -> bool:
        """Whether an operand's NaN makes the result NaN."""
        return self.value[0]

    @property
    def arises(self) -> bool:
        """Whether of numbers and infinities the result is NaN just where torch's is."""
        return self.value[1]


class Misread(Enum):
    """Which infinities an op takes for something else."""

    NONE = ""
    MINUS = "-inf"  # of nothing but -inf, the largest is the least finite number
    PLUS = "inf"
    MINUS_ROWS = "a row of nothing but -inf"
    ROWS = "a row that has inf, or nothing but -inf"
    PLUS_IN_MASK = "inf in the attention's mask"
    MASK_ROWS = "a row of the attention's mask that has inf, or leaves nothing"


@dataclass(frozen=True, slots=True)
class Rule(BaseRule):
    """All that is known of an op.

    Args:
        floats: the range of its float results; `NO_FLOATS` if it gives none.
        nan: what becomes of NaN in it.
        misread: which infinities it takes for something else.
        wide: whether OpenVINO is to compute it in float32 where its tensors are in half precision, since it
            cannot otherwise, or is further off than torch.
    """

    KINDS: ClassVar[Kinds] = {
        **BaseRule.KINDS,
        "f": frozenset({torch.float32, *HALVES}),
        "q": frozenset({torch.int8, torch.uint8}),  # quantized weights
    }

    floats: Floats
    nan: NaN = NaN.LOST
    misread: Misread = Misread.NONE
    wide: bool = False


RULES: Rules[Rule] = Rules()


def takes(
    names: str,
    kinds: str,
    floats: Floats,
    nan: NaN = NaN.LOST,
    misread: Misread = Misread.NONE,
    check: Check | None = None,
    wide: bool = False,
    open: Check | None = None,
) -> None:
    """Register ops, written as `add.Tensor relu.default …`; see `Rule`."""
    RULES.add(names, Rule(kinds, floats, nan, misread, wide, check=check, open=open))


def checked(
    names: str,
    kinds: str,
    floats: Floats,
    nan: NaN = NaN.LOST,
    misread: Misread = Misread.NONE,
    open: Check | None = None,
    wide: bool = False,
) -> Callable[[Check], Check]:
    """Register ops with a condition, the decorated function: it returns what is wrong, or None."""

    def register(check: Check) -> Check:
        takes(names, kinds, floats, nan, misread, check, wide=wide, open=open)
        return check

    return register


def NO_FLOATS(node: fx.Node, values: Values) -> Range:
    """Stand for the range of floats in the rules of ops that give none."""
    raise AssertionError(f"{node.target} gives no floats")


def range_of_result(node: fx.Node, values: Values) -> Range:
    """Return the range of a node's float results: anything, if its op has no rule."""
    if node.target is operator.getitem:
        return values.of(node.args[0])
    rule = RULES.get(str(node.target))
    return rule.floats(node, values) if rule is not None else ANYTHING


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

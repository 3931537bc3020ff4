"""The registry of ATen ops that OpenVINO computes as torch does, with everything that is known about each.

An op without a rule is decomposed by torch, or stays on the host. OpenVINO's frontend lowers more ops;
their results differed from torch's on torch's own op samples.
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

# Computes the range of an op's float results from its operands' ranges.
Floats = Callable[[fx.Node, Values], Range]


class NaN(Enum):
    """How the device treats NaN: whether an operand's propagates, and whether it arises as in torch."""

    # NaN may be lost: relu gives 0 for it, maximum the other operand, a comparison either result.
    LOST = (False, False)
    # Outside its domain the op gives NaN, as in torch; an operand's NaN may be lost.
    MADE = (False, True)
    # An operand's NaN propagates. For operands that are too large or infinite, the result may differ: kernels
    # that add in another order may give the other infinity, or NaN.
    KEPT = (True, False)
    # The result is NaN exactly where torch's is: data movement and elementwise arithmetic.
    EXACT = (True, True)

    @property
    def is_kept(self) -> bool:
        """Whether an operand's NaN propagates to the result."""
        return self.value[0]

    @property
    def arises(self) -> bool:
        """Whether, for operands without NaN, the result is NaN exactly where torch's is."""
        return self.value[1]


class Misread(Enum):
    """Which infinities an op handles differently from torch."""

    NONE = ""
    MINUS = "-inf"  # the maximum of nothing but -inf is the lowest finite number
    PLUS = "inf"
    MINUS_ROWS = "a row of nothing but -inf"
    ROWS = "a row that has inf, or nothing but -inf"
    PLUS_IN_MASK = "inf in the attention's mask"
    MASK_ROWS = "a row of the attention's mask that has inf, or leaves nothing"


@dataclass(frozen=True, slots=True)
class Rule(BaseRule):
    """Everything that is known about an op.

    Args:
        floats: computes the range of its float results; `NO_FLOATS` if it has none.
        nan: how it treats NaN.
        misread: which infinities it handles differently from torch.
        wide: whether half-precision tensors must be computed in float32, because OpenVINO does not support
            the op in half precision, or is less accurate than torch.
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
    """Register ops with the decorated function as their check: it returns what is wrong, or None."""

    def register(check: Check) -> Check:
        takes(names, kinds, floats, nan, misread, check, wide=wide, open=open)
        return check

    return register


def NO_FLOATS(node: fx.Node, values: Values) -> Range:
    """Stand in for the float range in the rules of ops without float results."""
    raise AssertionError(f"{node.target} gives no floats")


def range_of_result(node: fx.Node, values: Values) -> Range:
    """Return the range of a node's float results: `ANYTHING` if its op has no rule."""
    if node.target is operator.getitem:
        return values.of(node.args[0])
    rule = RULES.get(str(node.target))
    return rule.floats(node, values) if rule is not None else ANYTHING


def argument(detail: str, remedy: str = "") -> Verdict:
    """Return a verdict that refuses a node because of an argument."""
    return Verdict(False, "argument", detail, remedy)


def shape(detail: str, remedy: str = "") -> Verdict:
    """Return a verdict that refuses a node because of a shape."""
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

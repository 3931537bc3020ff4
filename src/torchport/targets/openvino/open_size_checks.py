"""Checks for which dimensions of an op may have open sizes; rules name them in `open`.

A rule without one supports fixed sizes only. Ops with one match torch at every size: the layer that
OpenVINO's frontend creates takes its sizes from its inputs, or from computed sizes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.rule_target import Check
from torchport.targets.size_terms import SIZE, is_size, operations_of
from torchport.torch_private import OpOverload

# The operations on sizes that OpenVINO's frontend computes.
_OPERATIONS = {"+", "-", "*", "//"}
# Ops that may use a size as an ordinary number.
_OF_SIZES = {"aten.remainder.Scalar", *(f"aten.arange.{form}" for form in ("default", "start", "start_step"))}


def any_size(node: fx.Node) -> Verdict | None:
    """Allow all dimensions to be open."""
    return None


def only_first(count: int) -> Check:
    """Return a check that only the first `count` dimensions of the first operand are open."""

    def check(node: fx.Node) -> Verdict | None:
        return _fixed(_value(node), range(count, _value(node).dim()))

    return check


def fixed_along(place: int) -> Check:
    """Return a check that the dimensions named by an argument are not open.

    Args:
        place: the position of the argument: one or several dimensions; missing or empty means all.
    """

    def check(node: fx.Node) -> Verdict | None:
        value = _value(node)
        dims = node.args[place] if place < len(node.args) else None
        dims = [dims] if isinstance(dims, int) else dims or range(value.dim())
        return _fixed(value, [dim for dim in dims if isinstance(dim, int)])  # type: ignore[union-attr]  # a list, by the schema

    return check


def fixed_last(count: Callable[[fx.Node], int]) -> Check:
    """Return a check that the last `count(node)` dimensions of the first operand are not open."""

    def check(node: fx.Node) -> Verdict | None:
        value = _value(node)
        return _fixed(value, range(value.dim() - count(node), value.dim()))

    return check


def check_size_arguments(node: fx.Node) -> Verdict | None:
    """Refuse open sizes used as operands of arithmetic, and sizes computed with unsupported operations."""
    if not isinstance(node.target, OpOverload):
        return None  # a higher-order op, which has no rule
    for argument, given in zip(node.target._schema.arguments, node.args, strict=False):
        is_number = "number" in str(argument.type) or str(argument.type) == "Tensor"
        if is_number and isinstance(given, fx.Node) and is_size(given) and str(node.target) not in _OF_SIZES:
            return Verdict(False, "shape", f"{node.target} uses an open size as a number")
    for source in node.all_input_nodes:
        hard = operations_of(source.meta[SIZE]) - _OPERATIONS if is_size(source) else ()
        if hard:
            return Verdict(
                False, "shape", f"a size is computed with {', '.join(sorted(hard))}, which OpenVINO cannot do"
            )
    return None


def _value(node: fx.Node) -> torch.Tensor:
    source = node.args[0]
    source = source[0] if isinstance(source, (list, tuple)) else source
    assert isinstance(source, fx.Node)
    value = source.meta["val"]
    assert isinstance(value, torch.Tensor)
    return value


def _fixed(value: torch.Tensor, dims: object) -> Verdict | None:
    for dim in dims:  # type: ignore[attr-defined]  # numbers
        if value.dim() and not isinstance(value.shape[dim], int):
            return Verdict(
                False, "shape", f"dimension {dim % value.dim()} is open, but OpenVINO needs it fixed",
                "fix the dimension, or leave the op on the host",
            )  # fmt: skip
    return None

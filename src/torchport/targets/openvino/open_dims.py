"""Which dimensions of an op's tensors may have open sizes: the checks that rules name in `open`.

A rule without one is of fixed sizes only. Those with one give the same result as torch at every size: the
layer that OpenVINO's frontend makes takes its sizes from its inputs, or from sizes that are computed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.rule_target import Check
from torchport.targets.size_terms import SIZE, is_size, operations_of
from torchport.torch_private import OpOverload

# What OpenVINO's frontend computes of sizes.
_OPERATIONS = {"+", "-", "*", "//"}
# Ops that may compute with a size as with any number.
_OF_SIZES = {"aten.remainder.Scalar", *(f"aten.arange.{form}" for form in ("default", "start", "start_step"))}


def any_size(node: fx.Node) -> Verdict | None:
    """All dimensions may be open."""
    return None


def only_first(count: int) -> Check:
    """Return the check that nothing but the first dimensions of the first operand is open."""

    def check(node: fx.Node) -> Verdict | None:
        return _fixed(_value(node), range(count, _value(node).dim()))

    return check


def fixed_along(place: int) -> Check:
    """Return the check that the dimensions which an argument names are not open.

    Args:
        place: which argument it is: a dimension, or several; all of them, if it is missing or empty.
    """

    def check(node: fx.Node) -> Verdict | None:
        value = _value(node)
        dims = node.args[place] if place < len(node.args) else None
        dims = [dims] if isinstance(dims, int) else dims or range(value.dim())
        return _fixed(value, [dim for dim in dims if isinstance(dim, int)])  # type: ignore[union-attr]  # a list, by the schema

    return check


def fixed_last(count: Callable[[fx.Node], int]) -> Check:
    """Return the check that the last dimensions of the first operand, so many, are not open."""

    def check(node: fx.Node) -> Verdict | None:
        value = _value(node)
        return _fixed(value, range(value.dim() - count(node), value.dim()))

    return check


def check_size_arguments(node: fx.Node) -> Verdict | None:
    """Refuse sizes that are computed with, rather than saying how large something is; and hard ones."""
    assert isinstance(node.target, OpOverload)
    for argument, given in zip(node.target._schema.arguments, node.args, strict=False):
        is_number = "number" in str(argument.type) or str(argument.type) == "Tensor"
        if is_number and isinstance(given, fx.Node) and is_size(given) and str(node.target) not in _OF_SIZES:
            return Verdict(False, "shape", f"{node.target} computes with a size that is open")
    for source in node.all_input_nodes:
        hard = operations_of(source.meta[SIZE]) - _OPERATIONS if is_size(source) else ()
        if hard:
            return Verdict(
                False, "shape", f"a size is computed with {', '.join(sorted(hard))}, which OpenVINO does not"
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
                False, "shape", f"dimension {dim % value.dim()} is open, which OpenVINO's lowering cannot be",
                "fix the dimension, or leave it to the host",
            )  # fmt: skip
    return None

"""Lowers elementwise functions of one operand."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import Lowering, Result, arguments, finite_in, packet, torch_value
from torchport.targets.ttnn.operand_forms import elementwise, meeting_dtype
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers
from torchport.targets.ttnn.ttnn_program import Name

_ON_FLOATS = """
acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh erf erfc exp exp2 expm1 log log2 log10 log1p sqrt
rsqrt reciprocal sigmoid
""".split()


def unary(lowering: Lowering, node: fx.Node, function: str, *args: object, **kwargs: object) -> Result:
    """Lower an elementwise function of one operand to a ttnn function."""
    source = node.args[0]
    dtype = meeting_dtype(lowering, (source,), torch_value(node).dtype)
    return elementwise(
        lowering, node, (source,), (dtype,), lambda a: lowering.call(function, a, *args, **kwargs)
    )


# gelu and sigmoid are not fused into other ops: ttnn would approximate them there.
@lowers("silu.default", "f", activation="silu")
@lowers("relu.default", "fi", activation="relu")
@lowers("mish.default hardswish.default hardsigmoid.default sign.default", "f")
@lowers("abs.default neg.default", "fi")
@lowers(" ".join(f"{name}.default" for name in _ON_FLOATS), "fib")
def _same_name(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return unary(lowering, node, packet(node))


@lowers("ceil.default floor.default round.default trunc.default", "f")
def _rounding(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    """Refuse bfloat16: a number rounded to bfloat16 first may be rounded to another integer."""
    if lowering.held_dtype(node.args[0]) != "float32" and torch_value(node).dtype is torch.float32:  # type: ignore[arg-type]
        refuse("dtype", "a number in bfloat16 could be rounded to another integer", "use dtype=float32")
    return unary(lowering, node, packet(node))


@lowers("gelu.default", "f")
def _gelu(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    variant = {"none": "Accurate", "tanh": "Tanh"}[given["approximate"]]
    return unary(lowering, node, "gelu", variant=Name(f"GeluVariant.{variant}"))


@lowers("leaky_relu.default", "f")
def _leaky_relu(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return unary(lowering, node, "leaky_relu", float(given["negative_slope"]))


@lowers("elu.default", "f")
def _elu(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    if given["scale"] != 1 or given["input_scale"] != 1:
        refuse("argument", "elu with a scale is not supported")
    return unary(lowering, node, "elu", alpha=float(given["alpha"]))


@lowers("softplus.default", "f")
def _softplus(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return unary(lowering, node, "softplus", beta=float(given["beta"]), threshold=float(given["threshold"]))


def _relu6(node: fx.Node) -> str:
    given = arguments(node)
    return "relu6" if (given["min_val"], given["max_val"]) == (0, 6) else ""


@lowers("hardtanh.default", "f", activation=_relu6)
def _hardtanh(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return _limited(lowering, node, given["min_val"], given["max_val"])


@lowers("clamp.default clamp_min.default clamp_max.default", "fi")
def _clamp(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return _limited(lowering, node, given.get("min"), given.get("max"))


def _limited(lowering: Lowering, node: fx.Node, least: object, most: object) -> Result:
    limits = [limit for limit in (least, most) if limit is not None]
    whole = not torch_value(node).is_floating_point()
    for limit in limits:
        if not isinstance(limit, (int, float)) or math.isnan(limit):
            refuse("argument", f"a limit is {limit!r}")
        if whole and (not isinstance(limit, int) or abs(limit) >= 2**31):
            refuse(
                "argument", f"integers are clamped to {limit!r}, which is not an integer within ±(2**31 - 1)"
            )
    if len(limits) == 2 and limits[0] > limits[1]:  # type: ignore[operator]  # both are numbers
        refuse("argument", "the lower limit is above the upper one")
    if (least, most) == (0, 6) and not whole:
        return unary(lowering, node, "relu6")

    dtype = meeting_dtype(lowering, (node.args[0],), torch_value(node).dtype)

    def number(limit: Any) -> int | float | None:
        return limit if limit is None or whole else finite_in(float(limit), dtype)

    return unary(lowering, node, "clamp", min=number(least), max=number(most))


@lowers("logical_not.default bitwise_not.default", "fib")
def _not(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    source = node.args[0]
    kind = torch_value(source).dtype
    if "bitwise" in str(node.target) and kind is not torch.bool:
        if kind.is_floating_point:
            refuse("dtype", "the bits of a float cannot be inverted")
        return unary(lowering, node, "bitwise_not")

    def compute(a: Value) -> Value:
        return lowering.cast(lowering.call("logical_not", a), "bfloat16")

    return elementwise(lowering, node, (source,), (None,), compute)

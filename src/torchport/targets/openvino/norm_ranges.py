"""Ranges of normalisation results, from a norm op or from the elementwise ops that language models use."""

from __future__ import annotations

import math

from torch import fx

from torchport.targets.openvino.float_ranges import (
    ANYTHING,
    MAX,
    SAFE,
    Range,
    added,
    loosened,
    multiplied,
)
from torchport.targets.openvino.float_values import Values

_ONE, _NONE = Range(1.0, 1.0), Range(0.0, 0.0)


def standardised(
    source: Range, count: int, eps: object, weight: Range = _ONE, bias: Range = _NONE, *, centred: bool = True
) -> Range:
    """Return the range of (x - mean) / sqrt(variance + eps) * weight + bias over `count` elements.

    None of n numbers lies further than sqrt(n) standard deviations from their mean. Kernels that multiply by
    weight / deviation before they subtract the mean add a rounding error. Uncentred norms do not have it.
    """
    if not isinstance(eps, float) or eps < 1e-30 or not count * source.largest**2 * 4 <= MAX / 10:
        return ANYTHING
    if not source.largest * weight.largest / math.sqrt(eps) <= SAFE:
        return ANYTHING
    most = math.sqrt(count) + (source.largest * 2.0**-22 / math.sqrt(eps) if centred else 0.0)
    return added(multiplied(loosened(-most, most, source.nan), weight), bias)


def decomposed_norm(node: fx.Node, values: Values) -> Range | None:
    """Return the range of a node of the form `x * rsqrt(mean(x * x) + eps)` or `x / sqrt(…)`.

    None if it has another form, or if x is so large that its squares could overflow.
    """
    is_quotient = str(node.target) == "aten.div.Tensor"
    pairs = [node.args[:2]] if is_quotient else [node.args[:2], node.args[1::-1]]
    for source, root in pairs:
        found = _mean_square(root, 0.5 if is_quotient else -0.5)
        if found is not None and found[0] is source:
            known = standardised(values.of(source), *found[1:], centred=False)
            return None if known is ANYTHING else known
    return None


def _mean_square(root: object, exponent: float) -> tuple[fx.Node, int, float] | None:
    """Return x, the number of elements averaged, and eps of `(mean(x * x) + eps) ** exponent`; or None."""
    name = "aten.sqrt.default" if exponent > 0 else "aten.rsqrt.default"
    if _is(root, "aten.pow.Tensor_Scalar") and root.args[1] == exponent:  # type: ignore[attr-defined]  # a node
        name = "aten.pow.Tensor_Scalar"
    total = _first(root, name)
    if not _is(total, "aten.add.Tensor", "aten.add.Scalar"):
        return None
    assert isinstance(total, fx.Node)
    mean, eps = total.args[:2]
    squares = _first(mean, "aten.mean.dim")
    source = _first(squares, "aten.pow.Tensor_Scalar", "aten.mul.Tensor")
    if not isinstance(eps, float) or total.kwargs or not isinstance(source, fx.Node):
        return None
    assert isinstance(mean, fx.Node)
    assert isinstance(squares, fx.Node)
    if squares.args[1] != (2 if str(squares.target) == "aten.pow.Tensor_Scalar" else source):
        return None
    dims, *keeps = mean.args[1:]
    sizes = [source.meta["val"].shape[dim] for dim in dims or ()]  # type: ignore[union-attr]  # numbers
    if keeps != [True] or not sizes or not all(isinstance(size, int) for size in sizes):
        return None
    return source, math.prod(sizes), eps


def _first(node: object, *names: str) -> object:
    """Return a node's first operand if its op has one of these names; otherwise None."""
    return node.args[0] if _is(node, *names) else None  # type: ignore[attr-defined]  # a node


def _is(node: object, *names: str) -> bool:
    return isinstance(node, fx.Node) and str(node.target) in names

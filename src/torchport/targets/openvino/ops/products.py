"""Rules for matrix products, convolutions and attention; floats only, as torch computes integers exactly."""

from __future__ import annotations

import math

import numpy
import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.float_ranges import (
    ANYTHING,
    SAFE,
    Range,
    added,
    loosened,
    multiplied,
    summed,
    union,
)
from torchport.targets.openvino.float_values import Values
from torchport.targets.openvino.open_size_checks import any_size, fixed_last, only_first
from torchport.targets.openvino.rules import Misread, NaN, argument, checked, given, shape, takes, value_of

Numbers = numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float64]]

_ZERO = Range(0.0, 0.0)


def _matmul_range(left: object, right: object, values: Values) -> Range:
    """Return the range of a matrix product; a constant operand's column or row sums narrow it."""
    for source, weight, dim in ((left, right, -2), (right, left, -1)):
        tensor = values.constant(weight)
        if tensor is not None:
            return _weighted(values.of(source), values, weight, (dim if tensor.dim() > 1 else 0,))
    assert isinstance(left, fx.Node)
    terms = multiplied(values.of(left), values.of(right))
    return summed(terms, left.meta["val"].shape[-1])


@numpy.errstate(all="ignore")  # NaN fails the comparison with SAFE
def _weighted(source: Range, values: Values, weight: object, dims: tuple[int, ...]) -> Range:
    """Return the range of sums of products with a constant weight along its dimensions `dims`.

    Padding counts as 0.
    """
    positive, negative = values.once(("sums", weight, dims), lambda: _signed_sums(values, weight, dims))
    source = union([source, _ZERO])
    if source.nan or source.infinite:
        return ANYTHING
    high = float((positive * source.high + negative * source.low).max())
    low = float((positive * source.low + negative * source.high).min())
    return loosened(low, high) if max(high, -low) <= SAFE else ANYTHING


@numpy.errstate(all="ignore")
def _signed_sums(values: Values, weight: object, dims: tuple[int, ...]) -> tuple[Numbers, Numbers]:
    """Return the sums of a weight's positive elements and of its negative ones along `dims`."""
    tensor = values.constant(weight)
    assert tensor is not None
    total, absolute = [
        part.sum(dims, dtype=torch.float32).double().numpy() for part in (tensor, tensor.abs())
    ]
    return (absolute + total) / 2, (total - absolute) / 2


takes(
    "mm.default bmm.default dot.default", "f",
    lambda node, values: _matmul_range(node.args[0], node.args[1], values), NaN.KEPT, open=any_size,
)  # fmt: skip


def _addmm_range(node: fx.Node, values: Values) -> Range:
    product = multiplied(
        _matmul_range(node.args[1], node.args[2], values), values.of(node.kwargs.get("alpha", 1))
    )
    return added(multiplied(values.of(node.args[0]), values.of(node.kwargs.get("beta", 1))), product)


takes("addmm.default", "f", _addmm_range, NaN.KEPT, open=any_size)


def _linear_range(node: fx.Node, values: Values) -> Range:
    source, weight = node.args[:2]
    assert isinstance(weight, fx.Node)
    if values.constant(weight) is not None:
        product = _weighted(values.of(source), values, weight, (-1,))
    else:
        product = summed(multiplied(values.of(source), values.of(weight)), weight.meta["val"].shape[-1])
    bias = given(node, 2, "bias")
    return product if bias is None else added(product, values.of(bias))


takes("linear.default", "f", _linear_range, NaN.KEPT, open=any_size)


def _open_convolution(node: fx.Node) -> Verdict | None:
    """Allow any open sizes; only the batch for transposed convolutions, whose output size is computed."""
    return only_first(1)(node) if node.args[6] else None


def _convolution_range(node: fx.Node, values: Values) -> Range:
    source, weight, bias = node.args[:3]
    transposed, groups = node.args[6], node.args[8]
    assert isinstance(weight, fx.Node)
    assert isinstance(groups, int)
    sizes = weight.meta["val"].shape
    # A transposed weight's first dimension is the input channels; the sum over all bounds that of a group.
    dims = (0, *range(2, len(sizes))) if transposed else tuple(range(1, len(sizes)))
    if values.constant(weight) is not None:
        product = _weighted(values.of(source), values, weight, dims)
    else:
        # Padding counts as 0.
        terms = multiplied(union([values.of(source), _ZERO]), values.of(weight))
        product = summed(terms, math.prod(sizes[dim] for dim in dims))
    return product if bias is None else added(product, values.of(bias))


@checked("convolution.default", "f", _convolution_range, NaN.KEPT, open=_open_convolution)
def _convolution(node: fx.Node) -> Verdict | None:
    transposed, weight = node.args[6], value_of(node, 1)
    if transposed and weight.dim() == 3:
        return shape("the device does not compute one-dimensional transposed convolutions as torch does")
    if value_of(node).dim() != weight.dim():
        return shape("the input has no batch dimension")
    return None


def _attention_range(node: fx.Node, values: Values) -> Range:
    """Return the range of a weighted mean of the values, and of 0, the result where all keys are masked."""
    query, key, value = [values.of(source) for source in node.args[:3]]
    mask, width = given(node, 3, "attn_mask"), value_of(node).shape[-1]
    scale = given(node, 6, "scale")
    assert scale is None or isinstance(scale, (int, float))
    scores = summed(multiplied(query, key), width)
    # Some kernels scale the queries and keys first, others the scores.
    scores = union([scores, multiplied(scores, values.of(1 / math.sqrt(width) if scale is None else scale))])
    if isinstance(mask, fx.Node) and mask.meta["val"].is_floating_point():
        scores = added(scores, values.of(mask))
    if scores.nan or scores.high == math.inf or value.nan or value.infinite or value.largest > SAFE:
        return ANYTHING
    return loosened(min(value.low, 0.0), max(value.high, 0.0))


@checked(
    "scaled_dot_product_attention.default", "fb", _attention_range, misread=Misread.PLUS_IN_MASK,
    open=fixed_last(lambda node: 1), wide=True,
)  # fmt: skip
def _attention(node: fx.Node) -> Verdict | None:
    if given(node, 4, "dropout_p", 0.0) != 0.0:
        return Verdict(False, "random", "dropout draws random numbers", "call model.eval() first")
    if given(node, 5, "is_causal", False) and given(node, 3, "attn_mask") is not None:
        return argument("both a mask and is_causal are given")
    if given(node, 7, "enable_gqa", False):
        return argument("enable_gqa repeats heads inside the op", "repeat the keys and values before the op")
    if value_of(node).dim() < 3:
        return Verdict(False, "shape", "the inputs have neither a batch nor a head dimension")
    return None

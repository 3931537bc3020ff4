"""Rules for normalisation layers and softmax. The statistics that layers also return are unsupported."""

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
    inverted,
    loosened,
    multiplied,
    negated,
    powered,
)
from torchport.targets.openvino.float_values import Values
from torchport.targets.openvino.norm_ranges import standardised
from torchport.targets.openvino.open_size_checks import any_size, fixed_last, only_first
from torchport.targets.openvino.rules import Misread, NaN, argument, given, takes, value_of
from torchport.verification import HALVES

Numbers = numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float64]]
_ABSENT = 9  # the position of an argument that does not exist
_LEAST_EPS = 1e-30  # the smallest eps supported


def _affine_of(node: fx.Node, weight: int, bias: int, values: Values) -> tuple[Range, Range]:
    """Return the ranges of a layer's weight and bias, given the positions of these arguments."""
    given_ones = [given(node, place, "") for place in (weight, bias)]
    return (
        values.of(1.0 if given_ones[0] is None else given_ones[0]),
        values.of(0.0 if given_ones[1] is None else given_ones[1]),
    )


def _count(sizes: object) -> int:
    """Return how many elements are normalised together."""
    assert isinstance(sizes, (list, tuple))
    return math.prod(size for size in sizes if isinstance(size, int))


# The normalised dimensions must be fixed.
_fixed_shape = fixed_last(lambda node: len(node.args[1]))  # type: ignore[arg-type]  # a list, by the schema


def _layer_norm_range(node: fx.Node, values: Values) -> Range:
    source, sizes, _, _, eps = node.args
    count = _count(sizes)
    return standardised(values.of(source), count, eps, *_affine_of(node, 2, 3, values))


def _group_norm_range(node: fx.Node, values: Values) -> Range:
    source, _, _, _, channels, size, groups, eps = node.args
    assert isinstance(channels, int)
    assert isinstance(size, int)
    assert isinstance(groups, int)
    count = channels * size // groups
    return standardised(values.of(source), count, eps, *_affine_of(node, 1, 2, values))


def _rms_norm_range(node: fx.Node, values: Values) -> Range:
    sizes, eps = node.args[1], given(node, 3, "eps")
    count = _count(sizes)
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    weight, bias = _affine_of(node, 2, _ABSENT, values)
    return standardised(values.of(node.args[0]), count, eps, weight, bias, centred=False)


def _batch_norm_range(node: fx.Node, values: Values) -> Range:
    """Return the range of x * scale + shift, with the statistics from training."""
    source, weight, bias, mean, variance, _, eps = node.args
    known = [values.constant(item) for item in (weight, bias, mean, variance) if item is not None]
    if all(item is not None for item in known):
        key = ("norm", weight, bias, mean, variance, eps)
        scale, shift = values.once(key, lambda: _scale_and_shift(node, values))
        return _affine(values.of(source), scale, shift)
    deviation = powered(added(values.of(variance), values.of(eps)), 0.5)
    scales = inverted(deviation) if weight is None else multiplied(inverted(deviation), values.of(weight))
    shifts = multiplied(negated(values.of(mean)), scales)
    shifts = shifts if bias is None else added(shifts, values.of(bias))
    return added(multiplied(values.of(source), scales), shifts)


def _scale_and_shift(node: fx.Node, values: Values) -> tuple[Numbers, Numbers]:
    tensors = [values.constant(item) for item in node.args[1:5]]
    weight, bias, mean, variance = [None if one is None else one.float() for one in tensors]
    assert mean is not None
    assert variance is not None
    eps = node.args[6]
    assert isinstance(eps, (int, float))
    scale = (variance + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return scale.double().numpy(), shift.double().numpy()


@numpy.errstate(all="ignore")  # NaN fails the comparison with SAFE
def _affine(source: Range, scale: Numbers, shift: Numbers) -> Range:
    largest = float(numpy.abs(scale).max()) * source.largest + float(numpy.abs(shift).max())
    if source.nan or not largest <= SAFE:  # also if it is NaN
        return ANYTHING
    ends = numpy.stack([scale * source.low, scale * source.high]) + shift
    return loosened(float(ends.min()), float(ends.max()))


def _divisor(node: fx.Node) -> Verdict | None:
    """Refuse an eps of about 0: for equal elements torch then divides 0 by 0, and OpenVINO may not."""
    eps = given(node, 3, "eps") if "rms_norm" in str(node.target) else node.args[-1]
    if eps is not None and (not isinstance(eps, (int, float)) or eps < _LEAST_EPS):
        return argument(f"eps is {eps!r}", f"use an eps of at least {_LEAST_EPS}")
    return None


takes("rms_norm.default", "f", _rms_norm_range, check=_divisor, open=_fixed_shape)


def _first_result(node: fx.Node) -> Verdict | None:
    if any(user.args[1] != 0 for user in node.users):
        return argument("the mean and deviation are used, which the device does not return")
    return None


def _norm(node: fx.Node) -> Verdict | None:
    return _divisor(node) or _first_result(node)


def _batch_norm(node: fx.Node) -> Verdict | None:
    parts = [item for item in node.args[1:5] if isinstance(item, fx.Node)]
    if value_of(node).dtype in HALVES and any(item.op != "get_attr" for item in parts):
        return argument("in half precision, the statistics, weight and bias must be constants of the model")
    return _first_result(node)


takes(
    "_native_batch_norm_legit_no_training.default", "f", _batch_norm_range, check=_batch_norm, open=any_size
)
takes("native_layer_norm.default", "f", _layer_norm_range, check=_norm, open=_fixed_shape)
takes("native_group_norm.default", "f", _group_norm_range, check=_norm, wide=True, open=only_first(1))


def _whole(node: fx.Node) -> Verdict | None:
    if node.args[2]:
        return argument("half_to_float, a fused cast to float32, is not supported")
    return None


def _softmax_range(node: fx.Node, values: Values) -> Range:
    source = values.of(node.args[0])
    return Range(0.0, 1.0 + 1e-5, source.nan or source.infinite)


def _log_softmax_range(node: fx.Node, values: Values) -> Range:
    source = values.of(node.args[0])
    dim = node.args[1]
    assert isinstance(dim, int)
    count = value_of(node).shape[dim] if value_of(node).dim() else 1
    spread = added(source, negated(source))
    return loosened(spread.low - math.log(count), 0.0, source.nan or source.infinite)


takes("_softmax.default", "f", _softmax_range, NaN.LOST, Misread.ROWS, _whole, open=any_size)
takes("_log_softmax.default", "f", _log_softmax_range, NaN.LOST, Misread.ROWS, _whole, open=any_size)

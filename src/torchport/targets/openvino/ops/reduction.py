"""Rules for reductions and scans."""

from __future__ import annotations

from torch import fx

from torchport.records import Verdict
from torchport.targets.integer_bounds import bounds_of
from torchport.targets.openvino.float_ranges import (
    ANYTHING,
    SAFE,
    Range,
    absolute,
    added,
    averaged,
    loosened,
    negated,
    powered,
    squared,
    summed,
)
from torchport.targets.openvino.float_values import Values
from torchport.targets.openvino.open_size_checks import any_size, fixed_along
from torchport.targets.openvino.ops.movement import moved
from torchport.targets.openvino.rules import (
    NO_FLOATS,
    Misread,
    NaN,
    argument,
    checked,
    shape,
    takes,
    value_of,
)

takes("amax.default", "fi", moved, misread=Misread.MINUS_ROWS, open=any_size)
takes("amin.default", "fi", moved, misread=Misread.PLUS, open=any_size)
takes("any.default any.dim any.dims all.default all.dim", "b", NO_FLOATS, open=any_size)


def _count(node: fx.Node) -> int:
    """Return how many elements are reduced to one."""
    return int(value_of(node).numel() // max(node.meta["val"].numel(), 1))


def _sum_range(node: fx.Node, values: Values) -> Range:
    return summed(values.of(node.args[0]), _count(node))


def _mean_range(node: fx.Node, values: Values) -> Range:
    return averaged(values.of(node.args[0]), _count(node))


def _reduction(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() == 0:
        return shape("the input is zero-dimensional")
    if node.kwargs.get("dtype") not in (None, value_of(node).dtype):
        return argument("the requested result dtype differs from the input's")
    return None


takes("sum.dim_IntList sum.default", "fi", _sum_range, NaN.KEPT, check=_reduction, open=any_size)
takes("mean.dim mean.default", "fi", _mean_range, NaN.KEPT, check=_reduction, open=any_size)


@checked("argmax.default argmin.default", "fi", NO_FLOATS, open=any_size)
def _place(node: fx.Node) -> Verdict | None:
    """Refuse negative integers, which OpenVINO orders wrongly; ties give the first element, as in torch."""
    if value_of(node).dim() == 0:
        return shape("the input is zero-dimensional")
    if not value_of(node).is_floating_point() and bounds_of(node.args[0])[0] < 0:
        return argument("the integers could be negative")
    return None


def _cumsum_range(node: fx.Node, values: Values) -> Range:
    """Return the range of sums of one element, of two, and so on."""
    source, dim = values.of(node.args[0]), node.args[1]
    assert isinstance(dim, int)
    total = summed(source, value_of(node).shape[dim])
    return Range(min(source.low, total.low), max(source.high, total.high), total.nan)


# Computed in float32, as the kernel rounds each partial sum: bfloat16 counts no further than 256.
@checked("cumsum.default", "fi", _cumsum_range, open=any_size, wide=True)
def _cumsum(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() == 0:
        return shape("the input is zero-dimensional")
    if node.kwargs.get("dtype") not in (None, value_of(node).dtype):
        return argument("the requested result dtype differs from the input's")
    return None


def _norm_range(node: fx.Node, values: Values) -> Range:
    """Return the range of a sum of absolute values, or of the root of a sum of squares."""
    source = absolute(values.of(node.args[0]))
    if node.args[1] == 1:
        return summed(source, _count(node))
    squares = summed(squared(source), _count(node))
    # torch does not square a single number, so its norm does not overflow.
    return ANYTHING if squares.infinite else powered(squares, 0.5)


@checked("linalg_vector_norm.default", "f", _norm_range, open=any_size)
def _norm(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() == 0:
        return shape("the input is zero-dimensional")
    if node.kwargs.get("dtype") is not None:
        return argument("a result dtype is given")
    if len(node.args) < 3 or not node.args[2]:
        return argument("no dimensions are given, so that all are reduced at once")
    order = node.args[1]
    if order not in (1, 2):
        return argument(f"the order of the norm is {order!r}, neither 1 nor 2")
    return None


def _variance_range(node: fx.Node, values: Values) -> Range:
    """Return the range of a variance; if the sum of squares overflows, kernels give NaN or infinity."""
    source, correction = values.of(node.args[0]), node.kwargs.get("correction", 1)
    count, correction = _count(node), 1 if correction is None else correction
    if not isinstance(correction, (int, float)) or count <= correction:
        return ANYTHING
    squares = summed(powered(added(source, negated(source)), 2), count)
    if source.nan or squares.high > SAFE:
        return ANYTHING
    return loosened(0.0, squares.high / (count - correction))


# Computed in float32 (`wide`), as kernels round the mean to the dtype before they subtract it.
@checked("var.correction", "f", _variance_range, open=fixed_along(1), wide=True)
def _variance(node: fx.Node) -> Verdict | None:
    count, correction = _count(node), node.kwargs.get("correction", 1)
    correction = 1 if correction is None else correction
    if not isinstance(correction, int) or count <= correction:
        return argument(f"the correction {correction!r} is not an integer below the {count} elements reduced")
    if len(node.args) < 2 or not node.args[1]:
        return argument("no dimensions are given, so that all are reduced at once")
    return None

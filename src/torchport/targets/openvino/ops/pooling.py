"""Rules for pooling and resampling."""

from __future__ import annotations

import math

from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.float_ranges import ANYTHING, SAFE, Range, averaged, loosened, union
from torchport.targets.openvino.float_values import Values
from torchport.targets.openvino.open_size_checks import only_first
from torchport.targets.openvino.ops.movement import moved
from torchport.targets.openvino.rules import Floats, Misread, argument, checked, given, shape, takes, value_of


def _average_range(node: fx.Node, values: Values) -> Range:
    """Return the range of a mean over a window; padding counts as 0."""
    source = union([values.of(node.args[0]), Range(0.0, 0.0)])
    count = math.prod(_spread(_numbers(node.args[1]), [1] * (3 if "3d" in str(node.target) else 2)))
    return averaged(source, count)


def _adaptive_range(node: fx.Node, values: Values) -> Range:
    return averaged(values.of(node.args[0]), value_of(node).numel())


takes("_adaptive_avg_pool2d.default _adaptive_avg_pool3d.default", "f", _adaptive_range, open=only_first(1))


@checked("avg_pool2d.default avg_pool3d.default", "f", _average_range, open=only_first(1))
def _average(node: fx.Node) -> Verdict | None:
    if given(node, 6, "divisor_override") is not None:
        return argument("divisor_override is given")
    if given(node, 4, "ceil_mode", False) and not _divides(node):
        return argument("the device's ceil_mode differs from torch's at the borders")
    return _batched(node, 4 if "2d" in str(node.target) else 5)


@checked(
    "max_pool2d_with_indices.default max_pool3d_with_indices.default", "fi", moved, misread=Misread.MINUS,
    open=only_first(1),
)  # fmt: skip
def _maximum(node: fx.Node) -> Verdict | None:
    if any(user.args[1] == 1 for user in node.users):
        return argument("the indices are used, and the device breaks ties differently")
    return _batched(node, 4 if "2d" in str(node.target) else 5)


def _divides(node: fx.Node) -> bool:
    """Whether the last window ends where the padded input ends, so that rounding makes no difference."""
    kernel = _numbers(node.args[1])
    stride = _numbers(given(node, 2, "stride")) or kernel
    padding = _numbers(given(node, 3, "padding", 0))
    sizes = value_of(node).shape[-len(kernel) :]
    return all(
        (size + 2 * pad - window) % step == 0
        for size, window, step, pad in zip(
            sizes, kernel, _spread(stride, kernel), _spread(padding or [0], kernel), strict=True
        )
    )


def _numbers(value: object) -> list[int]:
    if isinstance(value, int):
        return [value]
    return [item for item in value if isinstance(item, int)] if isinstance(value, (list, tuple)) else []


def _spread(values: list[int], over: list[int]) -> list[int]:
    return values * len(over) if len(values) == 1 else values


def _batched(node: fx.Node, dimensions: int) -> Verdict | None:
    if value_of(node).dim() != dimensions:
        return shape("the input has no batch dimension")
    return None


def _interpolated(gain: float) -> Floats:
    """Return the rule for weighted sums of neighbors whose weights' absolute values sum to at most `gain`."""

    def interpolated(node: fx.Node, values: Values) -> Range:
        source = values.of(node.args[0])
        if source.nan or source.largest > SAFE:
            return ANYTHING
        if gain == 1.0:
            return loosened(source.low, source.high)
        return loosened(-gain * source.largest, gain * source.largest)

    return interpolated


def _resampled(node: fx.Node) -> Verdict | None:
    """Refuse a scale that differs from the ratio of the sizes: torch uses the scale, OpenVINO the sizes."""
    source, result = value_of(node), node.meta["val"]
    is_nearest = "nearest" in str(node.target)
    scales = given(node, 2 if is_nearest else 3, "scale_factors")
    sizes = list(zip(source.shape[2:], result.shape[2:], strict=True))
    if isinstance(scales, (list, tuple)) and any(
        before * scale != after for (before, after), scale in zip(sizes, scales, strict=True)
    ):
        return argument(
            f"the scale {list(scales)} is not the exact ratio of the sizes {list(source.shape[2:])} and "
            f"{list(result.shape[2:])}",
            "pass the size, or recompute_scale_factor=True",
        )
    if (
        not is_nearest
        and not given(node, 2, "align_corners", False)
        and any(after == 1 != before for before, after in sizes)
    ):
        return shape("the device samples another position when interpolating to a single pixel")
    return None


takes("upsample_nearest2d.vec", "f", moved, check=_resampled, open=only_first(1))
takes("upsample_bilinear2d.vec", "f", _interpolated(1.0), check=_resampled, open=only_first(1))
takes("upsample_bicubic2d.vec", "f", _interpolated(2.5), check=_resampled, open=only_first(1))

"""Lowers pooling."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import (
    TILE_LAYOUT,
    Formed,
    Lowering,
    Result,
    Results,
    size_pair,
    torch_value,
)
from torchport.targets.ttnn.ops.resampling import by_matrices
from torchport.targets.ttnn.ops.shaping import cut
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers
from torchport.targets.ttnn.ttnn_program import Name

_DRAM = Name("DRAM_MEMORY_CONFIG")


def _images(lowering: Lowering, node: fx.Node, source: fx.Node) -> tuple[Value, dict[str, Any]]:
    """Return the images to pool, and their sizes."""
    shape = torch_value(source).shape
    if len(shape) != 4:
        refuse("shape", "the input has no batch dimension")
    value = lowering.get(source, layout=lowering.held_layout(source, "last"), form="last")
    if value.dtype != "bfloat16":
        refuse("dtype", "ttnn pools only in bfloat16", "use dtype=bfloat16")
    sizes = {"batch_size": shape[0], "input_h": shape[2], "input_w": shape[3], "channels": shape[1]}
    return value, sizes


def _windows(given: dict[str, Any]) -> dict[str, Any]:
    kernel = size_pair(given["kernel_size"])
    return {
        "kernel_size": kernel,
        "stride": size_pair(given["stride"], kernel),
        "padding": size_pair(given["padding"]),
    }


@lowers("max_pool2d_with_indices.default", "fi", on_images=True)
def _max_pool(lowering: Lowering, node: fx.Node, given: Given) -> Results:
    if any(user.args[1] == 1 for user in node.users):
        refuse("argument", "the indices are used, but ttnn breaks ties differently")
    if lowering.held_dtype(given["self"]) == "float32":
        return [Formed(_largest_of_windows(lowering, node, given), "last"), None]
    value, sizes = _images(lowering, node, given["self"])
    result = lowering.call(
        "max_pool2d", input_tensor=value, **sizes, **_windows(given), dilation=size_pair(given["dilation"]),
        ceil_mode=bool(given["ceil_mode"]), output_layout=TILE_LAYOUT, memory_config=_DRAM,
    )  # fmt: skip
    return [Formed(result, "last"), None]


def _largest_of_windows(lowering: Lowering, node: fx.Node, given: Given) -> Value:
    """Return each window's maximum, over columns and then over rows: ttnn does not pool float32."""
    source, result = given["self"], node.meta["val"][0]
    if result.dim() != 4:
        refuse("shape", "the input has no batch dimension")
    batch, channels, *size = torch_value(source).shape
    windows, dilations = _windows(given), size_pair(given["dilation"])
    value = lowering.reshaped(
        lowering.laid_out(lowering.get(source, form="last"), "row_major"), (batch, *size, channels)
    )
    for dim in (2, 1):
        stride, kernel, dilation = (
            windows["stride"][dim - 1],
            windows["kernel_size"][dim - 1],
            dilations[dim - 1],
        )
        before, last = windows["padding"][dim - 1], (result.shape[dim + 1] - 1) * stride
        after = max(last + dilation * (kernel - 1) + 1 - before - size[dim - 1], 0)
        if before or after:
            padding = [(0, 0)] * 4
            padding[dim] = (before, after)
            value = lowering.call("pad", value, tuple(padding), -math.inf)
        size[dim - 1] = result.shape[dim + 1]
        pieces = [
            lowering.laid_out(
                lowering.reshaped(
                    cut(lowering, value, dim, start, start + last + 1, stride),
                    (1, 1, batch * math.prod(size), channels),
                ),
                "tile",
            )
            for start in range(0, dilation * kernel, dilation)
        ]
        largest = functools.reduce(lambda one, other: lowering.call("maximum", one, other), pieces)
        value = lowering.reshaped(lowering.laid_out(largest, "row_major"), (batch, *size, channels))
    return largest


@lowers("avg_pool2d.default", "f", on_images=True)
def _average_pool(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    value, sizes = _images(lowering, node, given["self"])
    result = _averages(
        lowering, value, sizes, _windows(given), bool(given["ceil_mode"]), bool(given["count_include_pad"]),
        given["divisor_override"],
    )  # fmt: skip
    return Formed(result, "last")


def _averages(
    lowering: Lowering,
    value: Value,
    sizes: dict[str, Any],
    windows: dict[str, Any],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Value:
    return lowering.call(
        "avg_pool2d", input_tensor=value, **sizes, **windows, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, divisor_override=divisor, output_layout=TILE_LAYOUT,
        memory_config=_DRAM,
    )  # fmt: skip


def _has_several_bins(node: fx.Node) -> bool:
    before, after = torch_value(node.args[0]).shape[-2:], torch_value(node).shape[-2:]
    return tuple(after) != (1, 1) and before != after


@lowers("_adaptive_avg_pool2d.default", "f", by_matrices=_has_several_bins)
def _adaptive(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    """Lower to a global mean, to average pooling with equal windows, or else to products with matrices."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    shape = tuple(torch_value(source).shape)
    height, width = tuple(torch_value(node).shape)[-2:]
    if len(shape) != 4:
        refuse("shape", "the input has no batch dimension")
    if shape[2:] == (height, width):
        return Formed(lowering.get(source, form="last"), "last")
    if (height, width) == (1, 1):
        value = lowering.reshaped(
            lowering.get(source, form="last"), (shape[0], 1, math.prod(shape[2:]), shape[1])
        )
        mean = lowering.call("mean", value, dim=(2,), keepdim=True)
        return Formed(lowering.reshaped(mean, (1, 1, shape[0], shape[1])), "last")
    if lowering.device_dtype(node) == "bfloat16" and not (shape[2] % height or shape[3] % width):
        value, sizes = _images(lowering, node, source)
        window = (shape[2] // height, shape[3] // width)
        windows = {"kernel_size": window, "stride": window, "padding": (0, 0)}
        return Formed(_averages(lowering, value, sizes, windows, False, True, None), "last")
    return by_matrices(lowering, source, _bins(shape[2], height), _bins(shape[3], width), "adaptive")


def _bins(size: int, bins: int) -> torch.Tensor:
    """Return the matrix that averages a line into bins: [bins, size]."""
    lines = torch.eye(size).reshape(1, size, 1, size)
    means: torch.Tensor = torch.ops.aten._adaptive_avg_pool2d(lines, [1, bins])
    return means.reshape(size, bins).t().contiguous()

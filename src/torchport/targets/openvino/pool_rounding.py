"""Rewrites `ceil_mode` pools as pools that round their size down, for which OpenVINO has fast kernels.

With fixed sizes it is known how far the last window extends over the border, and padding by that much at the
end gives the same windows. Max pools ignore padding. Average pools would count it, so those that need more
stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchport.targets.openvino.library import openvino

_ROUNDED_UP = "ceil_torch"  # the frontend's rounding type for `ceil_mode`


def round_pools_down(model: Any) -> None:
    """Replace a model's pools that round up, except where the spatial sizes are open."""
    for node in model.get_ordered_ops():
        if node.get_type_name() not in ("MaxPool", "AvgPool"):
            continue
        attributes = node.get_attributes()
        if attributes["rounding_type"] != _ROUNDED_UP:
            continue
        dimensions = list(node.get_input_partial_shape(0))[-len(attributes["kernel"]) :]
        if any(dimension.is_dynamic for dimension in dimensions):
            continue
        ends = pads_at_end([dimension.get_length() for dimension in dimensions], attributes)
        if node.get_type_name() == "MaxPool" or ends == attributes["pads_end"]:
            _replace(node, attributes, ends)


def pads_at_end(sizes: Sequence[int], attributes: Mapping[str, Any]) -> list[int]:
    """Return the padding at the end with which rounding down gives the windows of rounding up.

    Example:
        >>> pool = {"kernel": [3], "strides": [2], "pads_begin": [0], "pads_end": [0]}
        >>> pads_at_end([111], pool), pads_at_end([112], pool)
        ([0], [1])
    """
    found = []
    for size, window, stride, dilation, begin, end in zip(
        sizes,
        attributes["kernel"],
        attributes["strides"],
        attributes.get("dilations", [1] * len(sizes)),
        attributes["pads_begin"],
        attributes["pads_end"],
        strict=True,
    ):
        reach = dilation * (window - 1) + 1
        steps = -(-(size + begin + end - reach) // stride)
        if steps * stride >= size + begin:  # torch drops a window that starts in the padding at the end
            steps -= 1
        found.append(max(0, steps * stride + reach - size - begin))
    return found


def _replace(node: Any, attributes: Mapping[str, Any], ends: list[int]) -> None:
    ops = openvino().opset14
    source = node.input_value(0)
    strides, begins, kernel = attributes["strides"], attributes["pads_begin"], attributes["kernel"]
    if node.get_type_name() == "MaxPool":
        made = ops.max_pool(
            source, strides, attributes["dilations"], begins, ends, kernel, "floor", attributes["auto_pad"],
            attributes["index_element_type"], attributes["axis"],
        )  # fmt: skip
    else:
        made = ops.avg_pool(
            source, strides, begins, ends, kernel, attributes["exclude-pad"], "floor", attributes["auto_pad"]
        )
    made.set_friendly_name(node.get_friendly_name())
    openvino().utils.replace_node(node, made)

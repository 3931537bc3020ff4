"""Pads before the average pools of quantized numbers whose grid is shifted, instead of within them.

In 8 bits OpenVINO pads with the integer 0. Where the grid has another integer for the number 0, each window
over the border then averages numbers that are not there. Its padding on its own is right.
"""

from __future__ import annotations

from typing import Any

import numpy

from torchport.targets.openvino.library import openvino


def pad_before_pools(model: Any) -> None:
    """Separate the padding of a model's average pools that count it and read such a grid."""
    for node in model.get_ordered_ops():
        if node.get_type_name() != "AvgPool":
            continue
        settings = node.get_attributes()
        is_padded = any((*settings["pads_begin"], *settings["pads_end"])) and not settings["exclude-pad"]
        if is_padded and _reads_shifted_grid(node):
            _separate(node, settings)


def _reads_shifted_grid(node: Any) -> bool:
    """Whether quantized numbers reach a node, of a grid in which neither -128 nor 0 is the lowest integer."""
    seen, to_see = set(), [node]
    while to_see:
        port = to_see.pop()
        for source in (value.get_node() for value in port.input_values()):
            if source.get_friendly_name() in seen:
                continue
            seen.add(source.get_friendly_name())
            if source.get_type_name() != "FakeQuantize":
                to_see.append(source)
            elif _is_shifted(source):
                return True
    return False


def _is_shifted(grid: Any) -> bool:
    ends = [grid.input_value(place).get_node() for place in (3, 4)]
    if any(end.get_type_name() != "Constant" for end in ends):
        return True
    low, high = (end.get_data().astype(numpy.float64) for end in ends)
    levels = grid.get_attributes()["levels"]
    lowest = low / ((high - low) / (levels - 1))
    return not bool((numpy.isclose(lowest, 0) | numpy.isclose(lowest, -(levels // 2))).all())


def _separate(node: Any, settings: dict[str, Any]) -> None:
    opset = openvino().opset14
    source = node.input_value(0)
    before = node.get_output_partial_shape(0).rank.get_length() - len(settings["kernel"])
    begins, ends = ([0] * before + list(settings[name]) for name in ("pads_begin", "pads_end"))
    zero = opset.constant(0.0, source.get_element_type())
    padded = opset.pad(source, opset.constant(begins), opset.constant(ends), "constant", zero)
    none = [0] * len(settings["kernel"])
    made = opset.avg_pool(
        padded,
        settings["strides"],
        none,
        none,
        settings["kernel"],
        True,
        settings["rounding_type"],
        "explicit",
    )
    made.set_friendly_name(node.get_friendly_name())
    openvino().utils.replace_node(node, made)

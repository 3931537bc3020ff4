"""Rewrites the quantization grids that OpenVINO's layers with 8-bit weights replace by others.

It spreads 255 steps over 256, so that each value is off by up to a step, and confuses those of 65,536. With
fewer steps the layers compute in floats; in a full grid, with a clamp before it, they compute in 8 bits.
"""

from __future__ import annotations

from typing import Any

import numpy

from torchport.targets.openvino.library import openvino

_FULL, _CONFUSED = 256, 65536


def complete_grids(model: Any) -> None:
    """Replace such grids with larger ones, of which a clamp before them leaves the same part."""
    opset = openvino().opset13
    for node in model.get_ordered_ops():
        if node.get_type_name() != "FakeQuantize":
            continue
        steps = node.get_attributes()["levels"]
        if steps >= _FULL and steps != _CONFUSED:
            continue
        low, high = (float(node.input_value(place).get_node().get_data().item()) for place in (1, 2))
        step = (high - low) / (steps - 1)
        larger = _FULL if steps < _FULL else _CONFUSED + 1
        ends = [opset.constant(numpy.float32(end)) for end in _ends(low, high, step, larger)]
        made = opset.fake_quantize(opset.clamp(node.input_value(0), low, high), *ends, *ends, larger)
        made.set_friendly_name(node.get_friendly_name())
        openvino().utils.replace_node(node, made)


def _ends(low: float, high: float, step: float, larger: int) -> tuple[float, float]:
    """Return the ends of a grid of more steps that has those of a smaller one."""
    if low >= 0:
        return low, low + (larger - 1) * step
    if larger == _FULL and low >= -128.5 * step and high <= 127.5 * step:
        return -128 * step, 127 * step
    return high - (larger - 1) * step, high

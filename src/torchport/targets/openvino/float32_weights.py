"""Converts large half-precision weights to float32 in memory that the system can reclaim.

Where products are computed in float32, OpenVINO converts such a weight to float32, and that to its kernel's
packed form: it holds both, four times the weight's own size. The first is never read again. Here it is
created beforehand, in an unnamed file.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from torchport.targets.mapped_payload import Bytes, new_payload
from torchport.targets.openvino.library import openvino

_LARGE = 1 << 20  # bytes; smaller weights gain little
_MUCH = 1 << 26  # bytes of all large weights from which it pays off, as no compiled form can be saved then
# The attribute that disables constant folding of a node, by the name under which OpenVINO prints it.
_NOT_FOLDED = "DisableConstantFolding_0"


def widen_weights(model: Any) -> Bytes | None:
    """Convert a model's large half-precision weights; return their new memory, which the caller must keep.

    None, with the model unchanged, if there is not much to gain.
    """
    halves = (openvino().Type.bf16, openvino().Type.f16)
    found = [
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "Constant" and node.get_element_type() in halves
    ]
    large = [node for node in found if node.get_byte_size() >= _LARGE and not _is_converted(node)]
    total = sum(node.get_byte_size() for node in large)
    if total < _MUCH:
        return None
    room = new_payload(2 * total)
    left = room.view(numpy.float32)
    for node in large:
        shape = list(node.get_output_shape(0))
        wide, left = left[: math.prod(shape)], left[math.prod(shape) :]
        _fill(wide, node)
        _replace(node, wide.reshape(shape))
    model.validate_nodes_and_infer_types()
    return room


def _is_converted(node: Any) -> bool:
    """Whether the model itself converts a constant, such as the scales of low-bit weights."""
    return any(user.get_node().get_type_name() == "Convert" for user in node.output(0).get_target_inputs())


def _fill(wide: Any, node: Any) -> None:
    """Write a weight's values in float32."""
    stored = node.get_data().reshape(-1)
    if node.get_element_type() == openvino().Type.f16:
        wide[:] = stored.view(numpy.float16)
    else:  # bfloat16 is the upper half of a float32
        wide.view(numpy.uint32)[:] = stored.view(numpy.uint16)
        wide.view(numpy.uint32)[:] <<= 16


def _replace(node: Any, values: Any) -> None:
    """Replace a weight by the same values in float32, followed by a cast back to its dtype."""
    opset = openvino().opset13
    back = opset.convert(opset.constant(values, shared_memory=True), node.get_element_type().get_type_name())
    back.get_rt_info()[_NOT_FOLDED] = ""
    back.set_friendly_name(node.get_friendly_name())
    node.output(0).replace(back.output(0))

"""Has large weights of half precision in float32 where the system can take their memory back.

Where products are computed in float32, OpenVINO makes float32 of such a weight, and of that the form that its
kernel reads: it holds the weight twice, four times its own size. The first is never read again. Here it is
made beforehand, in a file without a name.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from torchport.targets.mapped_payload import Bytes, new_payload
from torchport.targets.openvino.library import openvino

_LARGE = 1 << 20  # bytes; of smaller weights there is little to gain
_MUCH = 1 << 26  # bytes of all large ones together, from which it pays: a compiled form cannot be kept then
# By which OpenVINO knows that it must not compute a constant beforehand: as it prints that attribute's name.
_NOT_FOLDED = "DisableConstantFolding_0"


def widen_weights(model: Any) -> Bytes | None:
    """Change a model's large weights of half precision; return the memory that they lie in, to be kept.

    None if there is not much to gain; the model is as it was then.
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
    """Whether the model itself makes float32 of a weight, such as the scales of weights of few bits."""
    return any(user.get_node().get_type_name() == "Convert" for user in node.output(0).get_target_inputs())


def _fill(wide: Any, node: Any) -> None:
    """Write a weight's numbers in float32."""
    stored = node.get_data().reshape(-1)
    if node.get_element_type() == openvino().Type.f16:
        wide[:] = stored.view(numpy.float16)
    else:  # the upper half of a float32
        wide.view(numpy.uint32)[:] = stored.view(numpy.uint16)
        wide.view(numpy.uint32)[:] <<= 16


def _replace(node: Any, values: Any) -> None:
    """Put the same numbers in float32 in a weight's place, and a cast back to what it was behind them."""
    opset = openvino().opset13
    back = opset.convert(opset.constant(values, shared_memory=True), node.get_element_type().get_type_name())
    back.get_rt_info()[_NOT_FOLDED] = ""
    back.set_friendly_name(node.get_friendly_name())
    node.output(0).replace(back.output(0))

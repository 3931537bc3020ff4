"""Limits constants to 32 bits, in which OpenVINO computes integers.

torch writes the largest 64-bit integer for the end of a slice that goes on to the end. OpenVINO makes it the
nearest 32-bit integer when it compiles a model, but its lower half, -1, when it imports a compiled form.
"""

from __future__ import annotations

from typing import Any

import numpy

from torchport.targets.openvino.library import openvino

_WIDE = ("i64", "u64", "u32")
_LIMITS = numpy.iinfo(numpy.int32)


def narrow_integers(model: Any) -> None:
    """Replace constants beyond 32 bits by the nearest 32-bit integers."""
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or node.get_element_type().get_type_name() not in _WIDE:
            continue
        values = node.get_data()
        if values.size and not _LIMITS.min <= values.min() <= values.max() <= _LIMITS.max:
            limited = openvino().opset13.constant(values.clip(_LIMITS.min, _LIMITS.max).astype(values.dtype))
            limited.set_friendly_name(node.get_friendly_name())
            openvino().utils.replace_node(node, limited)

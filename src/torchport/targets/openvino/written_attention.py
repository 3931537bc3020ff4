"""Writes attention out, where OpenVINO would do so itself, and slower.

Its kernel for attention is only for caches that it holds itself, and ARM has none. What it writes multiplies
all keys by the square root of the scale, and transposes them, in each call; of a cache that is many times
what the token itself needs. Here the scale goes to the queries, and the product reads the keys as they are.
"""

from __future__ import annotations

import math
from typing import Any

from torchport.targets.openvino.library import openvino

_QUERY, _KEY, _VALUE, _MASK, _SCALE = range(5)


def write_attention(model: Any) -> None:
    """Replace each attention that has no causal mask of its own, and whose scale is known."""
    for node in model.get_ordered_ops():
        if node.get_type_name() != "ScaledDotProductAttention" or node.get_attributes()["causal"]:
            continue
        scale = _scale_of(node)
        if scale is None:
            continue
        written = _written(node, scale)
        written.set_friendly_name(node.get_friendly_name())
        node.output(0).replace(written.output(0))
    model.validate_nodes_and_infer_types()


def _scale_of(node: Any) -> Any:
    """Return what queries are multiplied by; None if it would be rounded, or is not known."""
    if node.get_input_size() > _SCALE:
        return node.input_value(_SCALE)
    width = node.get_input_partial_shape(_QUERY)[-1]
    if width.is_dynamic or node.get_output_element_type(0) != openvino().Type.f32:
        return None
    return openvino().opset13.constant(1 / math.sqrt(width.get_length()), openvino().Type.f32)


def _written(node: Any, scale: Any) -> Any:
    opset, dtype = openvino().opset13, node.get_output_element_type(0).get_type_name()
    query = opset.multiply(node.input_value(_QUERY), scale)
    scores = opset.matmul(query, node.input_value(_KEY), transpose_a=False, transpose_b=True)
    if node.get_input_size() > _MASK:
        mask = node.input_value(_MASK)
        if mask.get_element_type() == openvino().Type.boolean:
            hidden = opset.convert(opset.constant(-math.inf, openvino().Type.f32), dtype)
            scores = opset.select(mask, scores, hidden)
        else:
            scores = opset.add(scores, mask)
    chances = opset.softmax(scores, -1)
    return opset.matmul(chances, node.input_value(_VALUE), transpose_a=False, transpose_b=False)

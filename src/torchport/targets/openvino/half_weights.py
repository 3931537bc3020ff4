"""Has products of half precision computed in float32, by weights that stay as they are.

On x86 without instructions for bfloat16, OpenVINO multiplies such tensors all the same, element by element,
and up to a hundred times slower than float32. Here what goes into a product is cast to float32, and what
comes out is rounded once, as torch does. Weights are marked as compressed: a kernel reads them as they are
and widens them on its way, so that a token takes half of the memory's time, and none is held in float32.

OpenVINO has that kernel for language models alone, which it knows by an attention and a state. As attentions
are written out, and the caller holds the cache, it is given small ones of both.
"""

from __future__ import annotations

import math
import platform
from typing import Any

import numpy

from torchport.targets.openvino.library import core, openvino

# By which OpenVINO knows a cast of a compressed weight: as it prints that attribute's name.
_COMPRESSED = "decompression_0"
# In elements: smaller weights are as fast in float32.
_LARGE = 1 << 18
_STATE = "torchport_language_model"
# With one thread, OpenVINO cannot compile an attention of one element.
_STATE_SHAPE = (1, 1, 2, 8)


def computes_halves() -> bool:
    """Whether this CPU has instructions for bfloat16, or OpenVINO casts to float32 by itself, as on ARM."""
    return platform.machine().lower() not in ("x86_64", "amd64") or has_bfloat16()


def has_bfloat16() -> bool:
    """Whether this CPU has instructions for bfloat16."""
    return "BF16" in core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def compute_in_float32(model: Any) -> Any | None:
    """Return a model whose products are in float32, by weights in half precision; None if it has none."""
    halves = (openvino().Type.bf16, openvino().Type.f16)
    products = [
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "MatMul" and node.get_output_element_type(0) in halves
    ]
    by_weights = [node for node in products if _is_large(node.input_value(1).get_node())]
    if not by_weights:
        return None
    for node in products:
        _replace(node)
    return model if model.get_sinks() else _as_language_model(model)


def _is_large(node: Any) -> bool:
    return _is_constant(node) and math.prod(node.get_output_shape(0)) >= _LARGE


def _is_constant(node: Any) -> bool:
    return bool(node.get_type_name() == "Constant")


def _replace(node: Any) -> None:
    """Have a product computed in float32, with its bias: torch rounds their sum once."""
    opset = openvino().opset13
    dtype = node.get_output_element_type(0).get_type_name()
    flags = node.get_attributes()
    sources = [_widened(node.input_value(place)) for place in range(2)]
    result = opset.matmul(*sources, flags["transpose_a"], flags["transpose_b"])
    result.set_friendly_name(node.get_friendly_name())  # by which a profile knows the op
    bias = _bias_of(node)
    if bias is not None:
        added, value = bias
        result = opset.add(result, _widened(value))
        result.set_friendly_name(added.get_friendly_name())
        node = added
    node.output(0).replace(opset.convert(result, dtype).output(0))


def _bias_of(node: Any) -> tuple[Any, Any] | None:
    """Return the sum that a product goes into, and the constant that is added, if that is all it is for."""
    users = list(node.output(0).get_target_inputs())
    if len(users) != 1 or users[0].get_node().get_type_name() != "Add":
        return None
    added = users[0].get_node()
    value = added.input_value(1 - users[0].get_index())
    return (added, value) if _is_constant(value.get_node()) else None


def _widened(value: Any) -> Any:
    """Return a value in float32."""
    wide = openvino().opset13.convert(value, "f32")
    if _is_constant(value.get_node()):
        wide.get_rt_info()[_COMPRESSED] = ""
    return wide


def _as_language_model(model: Any) -> Any:
    """Return the model with an attention of a small state to itself, which nothing else reads."""
    opset, library = openvino().opset13, openvino()
    zeros = opset.constant(numpy.zeros(_STATE_SHAPE, numpy.float32))
    state = opset.read_value(zeros, _STATE, library.Type.f32, library.PartialShape(list(_STATE_SHAPE)))
    seen = opset.scaled_dot_product_attention(state, state, state, causal=False)
    return library.Model(model.get_results(), [opset.assign(seen, _STATE)], model.get_parameters())

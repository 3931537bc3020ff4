"""Computes half-precision models in float32 with weights that stay in half precision.

On x86 without bfloat16 instructions, OpenVINO still multiplies such tensors in half precision, element by
element and up to a hundred times slower than float32; on ARM it computes in float32 itself. Here the model is
rewritten: inputs are cast to float32, and results are rounded once. Weights are marked as compressed, so that
the kernel reads them in half precision and widens them on the fly: a token takes half the memory bandwidth,
and no weight is held in float32.

OpenVINO has that kernel only for language models, which it recognizes by an attention op and a state. As
attention is decomposed and the caller holds the KV cache, a tiny dummy of both is added.
"""

from __future__ import annotations

import math
import platform
from typing import Any

import numpy

from torchport.targets.openvino.library import core, openvino

# The attribute that marks a cast as decompressing a weight, by the name under which OpenVINO prints it.
_COMPRESSED = "decompression_0"
# In elements. Smaller weights are as fast in float32.
_LARGE = 1 << 18
_STATE = "torchport_language_model"
# With one thread, OpenVINO cannot compile an attention of one element.
_STATE_SHAPE = (1, 1, 2, 8)


def computes_halves() -> bool:
    """Whether this CPU has bfloat16 instructions, or OpenVINO casts to float32 itself, as on ARM."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    return "BF16" in core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def compute_in_float32(model: Any) -> Any | None:
    """Return a copy of a model that computes in float32 with half-precision weights.

    Its inputs and outputs keep their dtypes. None if the model has no large product in half precision, or
    cannot be converted completely.
    """
    halves = _halves()
    if not any(
        node.get_type_name() == "MatMul"
        and node.get_output_element_type(0) in halves
        and _is_large(node.input_value(1).get_node())
        for node in model.get_ordered_ops()
    ):
        return None
    made = model.clone()
    results = [(result, result.get_output_element_type(0)) for result in made.get_results()]
    for node in made.get_ordered_ops():
        _widen(node)
    for result, dtype in results:
        if dtype in halves:
            source = result.input_value(0)
            back = openvino().opset13.convert(source, dtype.get_type_name())
            result.input(0).replace_source_output(back.output(0))
    made.validate_nodes_and_infer_types()
    if not all(map(_is_wide, made.get_ordered_ops())):
        return None
    return made if made.get_sinks() else _as_language_model(made)


def _halves() -> tuple[Any, Any]:
    return openvino().Type.bf16, openvino().Type.f16


def _is_large(node: Any) -> bool:
    return _is_constant(node) and math.prod(node.get_output_shape(0)) >= _LARGE


def _is_constant(node: Any) -> bool:
    return bool(node.get_type_name() == "Constant")


def _widen(node: Any) -> None:
    """Cast a node's output to float32 if the node itself sets half precision: a cast, input or constant."""
    kind, opset = node.get_type_name(), openvino().opset13
    if kind == "Convert" and node.get_output_element_type(0) in _halves():
        wide = opset.convert(node.input_value(0), "f32")
        wide.set_friendly_name(node.get_friendly_name())  # the name by which a profile finds the op
        node.output(0).replace(wide.output(0))
    elif kind in ("Parameter", "Constant") and node.get_output_element_type(0) in _halves():
        for user in list(node.output(0).get_target_inputs()):
            if _is_row_of(user):
                _widen_result(user.get_node())
            else:
                wide = opset.convert(node, "f32")
                if kind == "Constant":
                    wide.get_rt_info()[_COMPRESSED] = ""
                user.replace_source_output(wide.output(0))


def _is_row_of(user: Any) -> bool:
    """Whether an input looks up rows of a large weight: then the rows are cast rather than the weight."""
    return bool(
        user.get_node().get_type_name() == "Gather"
        and user.get_index() == 0
        and _is_large(user.get_source_output().get_node())
    )


def _widen_result(node: Any) -> None:
    users = list(node.output(0).get_target_inputs())
    wide = openvino().opset13.convert(node, "f32")
    for user in users:
        user.replace_source_output(wide.output(0))


def _is_wide(node: Any) -> bool:
    """Whether a node computes nothing in half precision."""
    if node.get_type_name() in ("Parameter", "Constant", "Result", "Convert"):
        return True
    return node.get_type_name() == "Gather" or all(
        port.get_element_type() not in _halves() for port in node.outputs()
    )


def _as_language_model(model: Any) -> Any:
    """Return the model with a dummy attention over a tiny state, which nothing else reads."""
    opset, library = openvino().opset13, openvino()
    zeros = opset.constant(numpy.zeros(_STATE_SHAPE, numpy.float32))
    state = opset.read_value(zeros, _STATE, library.Type.f32, library.PartialShape(list(_STATE_SHAPE)))
    seen = opset.scaled_dot_product_attention(state, state, state, causal=False)
    return library.Model(model.get_results(), [opset.assign(seen, _STATE)], model.get_parameters())

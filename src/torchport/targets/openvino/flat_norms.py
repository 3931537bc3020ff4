"""Flattens half-precision norms of many dimensions, for which OpenVINO's CPU plugin has no kernel.

It computes those as several ops, the mean first. Where the processor has bfloat16 instructions, the mean is
then rounded before it is subtracted: numbers far from 0 are off by as much as they vary. The kernel for rows
rounds only the result.
"""

from __future__ import annotations

from typing import Any

import numpy

from torchport.targets.openvino.library import openvino


def flatten_norms(model: Any) -> None:
    """Normalise the rows of a matrix instead, where a norm's last dimensions have no kernel of their own."""
    halves = (openvino().Type.bf16, openvino().Type.f16)
    for node in model.get_ordered_ops():
        if node.get_type_name() == "MVN" and node.get_output_element_type(0) in halves:
            length = _row_length(node)
            if length is not None:
                _flatten(node, length)


def _row_length(node: Any) -> int | None:
    """Return how many elements are normalised together; None if there is a kernel, or they are no row."""
    shape, axes = node.get_input_partial_shape(0), node.input_value(1).get_node()
    if shape.rank.is_dynamic or axes.get_type_name() != "Constant":
        return None
    rank = shape.rank.get_length()
    normalised = sorted(axis % rank for axis in axes.get_data().reshape(-1).tolist())
    has_kernel = rank < 4 and len(normalised) < rank
    if has_kernel or normalised != list(range(rank - len(normalised), rank)):
        return None
    sizes = [shape[axis] for axis in normalised]
    return (
        None if any(size.is_dynamic for size in sizes) else int(numpy.prod([s.get_length() for s in sizes]))
    )


def _flatten(node: Any, length: int) -> None:
    opset, source = openvino().opset13, node.input_value(0)
    rows = opset.reshape(source, opset.constant([-1, length]), special_zero=False)
    # Calls the constructor with the node's own attributes: they say where eps is added.
    made = opset.mvn(rows, opset.constant([1]), **_settings(node))
    shape = node.get_output_partial_shape(0)
    sizes = opset.shape_of(source) if shape.is_dynamic else opset.constant(list(shape.to_shape()))
    back = opset.reshape(made, sizes, special_zero=False)
    made.set_friendly_name(node.get_friendly_name())  # the name by which a profile finds the op
    node.output(0).replace(back.output(0))


def _settings(node: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in node.get_attributes().items()
        if name in ("normalize_variance", "eps", "eps_mode")
    }

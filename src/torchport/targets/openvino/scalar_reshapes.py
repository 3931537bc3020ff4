"""Rewrites reshapes to a scalar as squeezes: OpenVINO crashes on such a reshape after a matrix product."""

from __future__ import annotations

from typing import Any

import numpy

from torchport.targets.openvino.library import openvino


def squeeze_to_scalars(model: Any) -> None:
    """Replace a model's reshapes to zero dimensions."""
    opset = openvino().opset13
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Reshape":
            continue
        made, given = node.get_output_partial_shape(0).rank, node.get_input_partial_shape(0).rank
        if made.is_dynamic or made.get_length() or given.is_dynamic or not given.get_length():
            continue
        axes = opset.constant(numpy.arange(given.get_length()))
        squeezed = opset.squeeze(node.input_value(0), axes)
        squeezed.set_friendly_name(node.get_friendly_name())
        openvino().utils.replace_node(node, squeezed)

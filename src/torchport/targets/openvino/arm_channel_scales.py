"""Separates per-channel scales from 8-bit products: on ARM, OpenVINO applies the first scale to all channels.

Unless snippets are enabled, its ARM plugin fuses the weight's scales into an 8-bit product, which supports
only one scale (2026.4). With a reshape in between, it does not fuse them.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy

from torchport.targets.openvino.fused_kernels import WITHOUT_MERGED_KERNELS
from torchport.targets.openvino.library import openvino


def are_scales_collapsed(config: Mapping[str, object]) -> bool:
    """Whether OpenVINO with this config applies the first scale to all channels: on ARM without snippets."""
    is_arm = platform.machine().lower() in ("aarch64", "arm64")
    return is_arm and all(config.get(key) == value for key, value in WITHOUT_MERGED_KERNELS.items())


def separate_channel_scales(model: Any) -> None:
    """Scale each product with an 8-bit weight by one number, and its channels only after a reshape."""
    nodes = model.get_ordered_ops()
    if not any(node.get_type_name() == "FakeQuantize" for node in nodes):
        return  # products are then computed in floats
    opset = openvino().opset13
    for node in nodes:
        found = _weight_of(node) if node.get_type_name() == "MatMul" else None
        if found is None:
            continue
        values, scales = found
        largest = scales.max()
        attributes = node.get_attributes()
        product = opset.matmul(
            node.input_value(0),
            opset.multiply(values, opset.constant(largest)),
            attributes["transpose_a"],
            attributes["transpose_b"],
        )
        first = opset.constant([0])
        by_channel = opset.multiply(opset.unsqueeze(product, first), opset.constant(scales / largest))
        made = opset.squeeze(by_channel, first)
        made.set_friendly_name(node.get_friendly_name())
        node.output(0).replace(made.output(0))
    model.validate_nodes_and_infer_types()


def _behind_expansion(product: Any) -> Any:
    """Return the node of a product's weight before any broadcast over a batch.

    None if removing the broadcast could change the result.
    """
    operand = product.input_value(1)
    ranks = [value.get_partial_shape().rank for value in (product.input_value(0), operand)]
    found = operand.get_node()
    if found.get_type_name() in ("Broadcast", "Unsqueeze", "Reshape"):
        if any(rank.is_dynamic for rank in ranks) or ranks[0].get_length() < ranks[1].get_length():
            return None
        source = found.input_value(0)
        shapes = [value.get_partial_shape() for value in (source, operand)]
        if shapes[0].is_dynamic or list(shapes[0])[-2:] != list(shapes[1])[-2:]:
            return None
        found = source.get_node()
    return found


def _weight_of(product: Any) -> tuple[Any, Any] | None:
    """Return a product's int8 weight and its per-channel scales; None if it has none."""
    scaled = _behind_expansion(product)
    if scaled is None or scaled.get_type_name() != "Multiply":
        return None
    values, scale = scaled.input_value(0), scaled.input_value(1).get_node()
    if values.get_node().get_type_name() != "Convert" or scale.get_type_name() != "Constant":
        return None
    stored = values.get_node().input_value(0)
    is_int8 = stored.get_element_type().get_type_name() == "i8"
    if not is_int8 or stored.get_node().get_type_name() != "Constant" or len(stored.get_shape()) != 2:
        return None
    channels = 0 if product.get_attributes()["transpose_b"] else 1
    shape = list(scale.get_output_shape(0))
    if len(shape) != 2 or shape[channels] == 1 or shape[1 - channels] != 1:
        return None
    scales = numpy.array(scale.get_data(), dtype=numpy.float32).reshape(-1)
    return (values, scales) if scales.max() > 0 else None

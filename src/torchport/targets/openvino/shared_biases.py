"""Parts a bias from its product where several ops read the sum: OpenVINO for ARM computes such a sum wrongly.

Its plug-in for ARM adds the bias to a product in eight bits by itself. If a quantizer and something else read
the sum, all of them get wrong numbers (2026.4). With a reshape in between it leaves the sum alone.
"""

from __future__ import annotations

from typing import Any

from torchport.targets.openvino.library import openvino


def part_shared_biases(model: Any) -> None:
    """Put a dimension of size 1 around each sum of a product and a constant that several ops read."""
    opset = openvino().opset13
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Add" or len(node.output(0).get_target_inputs()) < 2:
            continue
        product, bias = node.input_value(0), node.input_value(1)
        if product.get_node().get_type_name() != "MatMul" or not _is_bias(bias, product):
            continue
        first = opset.constant([0])
        made = opset.squeeze(opset.add(opset.unsqueeze(product, first), bias), first)
        made.set_friendly_name(node.get_friendly_name())
        node.output(0).replace(made.output(0))
    model.validate_nodes_and_infer_types()


def _is_bias(value: Any, product: Any) -> bool:
    """Whether a value is a constant, converted at most, of no more dimensions than a product."""
    node = value.get_node()
    if node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    ranks = [each.get_partial_shape().rank for each in (value, product)]
    return (
        node.get_type_name() == "Constant"
        and not any(rank.is_dynamic for rank in ranks)
        and bool(ranks[0].get_length() <= ranks[1].get_length())
    )

"""Separates a bias from its product if several ops read the sum, which OpenVINO computes wrongly on ARM.

Its ARM plugin fuses the bias into an 8-bit product. If a quantizer and another op read the sum, all of them
get wrong values (2026.4). With a reshape in between, it does not fuse the bias.
"""

from __future__ import annotations

from typing import Any

from torchport.targets.openvino.library import openvino


def separate_shared_biases(model: Any) -> None:
    """Wrap each sum of a product and a constant that several ops read in an unsqueeze and a squeeze."""
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
    """Whether a value is a constant, at most converted, with no more dimensions than a product."""
    node = value.get_node()
    if node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    ranks = [each.get_partial_shape().rank for each in (value, product)]
    return (
        node.get_type_name() == "Constant"
        and not any(rank.is_dynamic for rank in ranks)
        and bool(ranks[0].get_length() <= ranks[1].get_length())
    )

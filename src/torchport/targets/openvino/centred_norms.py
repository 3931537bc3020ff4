"""Makes norms subtract the mean first, because OpenVINO on ARM loses the variance of numbers far from 0.

Its kernel computes the variance as the mean of the squares minus the square of the mean. For numbers around
1000 that differ by 1, cancellation leaves one digit of it in float32; torch subtracts the mean before
squaring.
"""

from __future__ import annotations

from typing import Any

from torchport.targets.openvino.library import openvino


def centre_norms(model: Any) -> None:
    """Subtract the mean before each norm of a model, which does not change the norm's exact result."""
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind == "MVN" and node.get_attributes()["normalize_variance"]:
            source = node.input_value(0)
            node.input(0).replace_source_output(_centred(source, node.input_value(1)).output(0))
        elif kind == "GroupNormalization":
            centred = _centred_groups(node.input_value(0), node.get_attributes()["num_groups"])
            node.input(0).replace_source_output(centred.output(0))


def _centred(source: Any, axes: Any) -> Any:
    opset = openvino().opset13
    return opset.subtract(source, opset.reduce_mean(source, axes, True))


def _centred_groups(source: Any, groups: int) -> Any:
    opset = openvino().opset13
    together = opset.reshape(source, opset.constant([0, groups, -1]), special_zero=True)
    centred = _centred(together.output(0), opset.constant([2]).output(0))
    return opset.reshape(centred, opset.shape_of(source), special_zero=False)

"""Has norms subtract the mean first, where OpenVINO for ARM would lose the variance of numbers far from 0.

Its kernel there takes the variance as the mean of the squares less the square of the mean. Of numbers around
1000 that differ by 1, float32 leaves one digit of that; torch subtracts the mean before it squares.
"""

from __future__ import annotations

from typing import Any

from torchport.targets.openvino.library import openvino


def centre_norms(model: Any) -> None:
    """Change each norm of a model to be of numbers whose mean is 0: its result stays the same."""
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

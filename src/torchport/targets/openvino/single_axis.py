"""Has reductions over several axes go over one, where OpenVINO for ARM would split them, and be slow or fail.

Its plug-in for ARM makes of each such reduction one for every axis, also of the sums over whole tensors with
which we look for NaN, where one over all elements is faster. In models that hold a FakeQuantize it
reads those axes from memory that was never written: "Axis 281470681743360 out of the tensor rank range". Two
reductions in a row do not help, as OpenVINO merges them first; a reshape before a single one does.
"""

from __future__ import annotations

import platform
from typing import Any

from torchport.targets.openvino.centred_norms import centre_norms
from torchport.targets.openvino.library import openvino
from torchport.targets.openvino.shared_biases import part_shared_biases

_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


def mend_for_arm(model: Any) -> None:
    """Change what is slow or wrong, if the processor is an ARM one."""
    if platform.machine().lower() not in ("aarch64", "arm64"):
        return
    centre_norms(model)
    is_quantized = any(node.get_type_name() == "FakeQuantize" for node in model.get_ops())
    merge_axes(model, whole_tensors_only=not is_quantized)
    if is_quantized:
        part_shared_biases(model)


def merge_axes(model: Any, *, whole_tensors_only: bool = False) -> None:
    """Change each reduction over several axes: they are moved to the end, and become one.

    Args:
        model: the model.
        whole_tensors_only: whether only reductions over all axes are changed: those need not be moved.
    """
    for node in model.get_ordered_ops():
        axes = _axes(node)
        if len(axes) < 2:
            continue
        if whole_tensors_only and len(axes) < node.get_input_partial_shape(0).rank.get_length():
            continue
        made = _over_one(node, axes)
        made.set_friendly_name(node.get_friendly_name())
        node.output(0).replace(made.output(0))
    model.validate_nodes_and_infer_types()


def _axes(node: Any) -> list[int]:
    """Return the axes of a reduction, counted from the first one; none if they are not known."""
    if node.get_type_name() not in _REDUCTIONS:
        return []
    given, rank = node.input_value(1).get_node(), node.get_input_partial_shape(0).rank
    if given.get_type_name() != "Constant" or rank.is_dynamic:
        return []
    return sorted(int(axis) % rank.get_length() for axis in given.get_data().reshape(-1))


def _over_one(node: Any, axes: list[int]) -> Any:
    opset = openvino().opset13
    reductions = {
        "ReduceSum": opset.reduce_sum, "ReduceMean": opset.reduce_mean, "ReduceMax": opset.reduce_max,
        "ReduceMin": opset.reduce_min, "ReduceProd": opset.reduce_prod,
    }  # fmt: skip
    kept = [axis for axis in range(node.get_input_partial_shape(0).rank.get_length()) if axis not in axes]
    value = node.input_value(0)
    if kept + axes != sorted(kept + axes):
        value = opset.transpose(value, opset.constant(kept + axes))
    # 0 stands for the size that is there, which may be open.
    shape = opset.constant([0] * len(kept) + [-1])
    merged = opset.reshape(value, shape, special_zero=True)
    reduced = reductions[node.get_type_name()](merged, opset.constant([len(kept)]), False)
    return opset.unsqueeze(reduced, opset.constant(axes)) if node.get_attributes()["keep_dims"] else reduced

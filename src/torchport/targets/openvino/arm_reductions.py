"""Rewrites reductions over several axes as reductions over one: on ARM, OpenVINO's are slow or fail.

Its ARM plugin splits each such reduction into one per axis, even the sums over whole tensors that check for
NaN, where a single one over all elements is faster. In models with a FakeQuantize it then reads the axes from
uninitialized memory: "Axis 281470681743360 out of the tensor rank range". Two consecutive reductions do not
help, as OpenVINO merges them first; a reshape before a single one does.
"""

from __future__ import annotations

import platform
from typing import Any

from torchport.targets.openvino.arm_shared_biases import separate_shared_biases
from torchport.targets.openvino.centred_norms import centre_norms
from torchport.targets.openvino.library import openvino

_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


def apply_arm_workarounds(model: Any) -> None:
    """Rewrite what is slow or wrong on ARM; does nothing on other processors."""
    if platform.machine().lower() not in ("aarch64", "arm64"):
        return
    centre_norms(model)
    is_quantized = any(node.get_type_name() == "FakeQuantize" for node in model.get_ops())
    merge_axes(model, whole_tensors_only=not is_quantized)
    if is_quantized:
        separate_shared_biases(model)


def merge_axes(model: Any, *, whole_tensors_only: bool = False) -> None:
    """Rewrite each reduction over several axes: they are transposed to the end and merged into one.

    Args:
        model: the model, changed in place.
        whole_tensors_only: whether to rewrite only reductions over all axes, which need no transpose.
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
    """Return the axes of a reduction, non-negative and sorted; empty for other ops or unknown axes."""
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
    # 0 keeps a size, which may be open.
    shape = opset.constant([0] * len(kept) + [-1])
    merged = opset.reshape(value, shape, special_zero=True)
    reduced = reductions[node.get_type_name()](merged, opset.constant([len(kept)]), False)
    return opset.unsqueeze(reduced, opset.constant(axes)) if node.get_attributes()["keep_dims"] else reduced

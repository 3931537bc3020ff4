"""Rewrites `index_copy` to copy whole rows: a scatter with one index per row instead of one per element.

OpenVINO's frontend broadcasts the index to every element that is copied. Updating a KV cache, where a step
copies one row per head, is faster without that.
"""

from __future__ import annotations

from typing import Any

from torchport.targets.openvino.library import openvino


def copy_rows(model: Any) -> None:
    """Replace element-wise scatters by row-wise ones, where all elements of a row have the same index."""
    for node in model.get_ordered_ops():
        if node.get_type_name() == "ScatterElementsUpdate" and node.get_attributes()["reduction"] == "none":
            index = _index_of_rows(node)
            if index is not None:
                target, _, rows, _ = node.input_values()
                axis = openvino().opset13.constant(_axis(node))
                made = openvino().opset13.scatter_update(target, index, rows, axis)
                made.set_friendly_name(node.get_friendly_name())
                node.output(0).replace(made.output(0))


def _index_of_rows(node: Any) -> Any:
    """Return the row indices of an element-wise scatter; None if it does not copy whole rows.

    Only `index_copy` has this form: an index broadcast along one axis to an explicit shape. For it, torch
    requires one index per row, and rows of the same length as those they replace.
    """
    spread = node.input_value(1).get_node()
    if spread.get_type_name() != "Broadcast" or spread.get_input_size() != 3:
        return None
    index, _, places = spread.input_values()
    rank = index.get_partial_shape().rank
    if rank.is_dynamic or rank.get_length() != 1:
        return None
    axis = _axis(node)
    return index if axis is not None and _number(places) == axis else None


def _axis(node: Any) -> int | None:
    """Return the axis of a scatter, counted from the first; None if it is not known."""
    axis, rank = _number(node.input_value(3)), node.get_input_partial_shape(0).rank
    return None if axis is None or rank.is_dynamic else axis % rank.get_length()


def _number(port: Any) -> int | None:
    """Return a port's constant scalar value; None if it is anything else."""
    node = port.get_node()
    if node.get_type_name() != "Constant" or node.get_data().size != 1:
        return None
    return int(node.get_data().item())

"""Has OpenVINO copy whole rows: `index_copy` becomes an op on rows instead of one on each element.

OpenVINO's frontend writes an index for every element that is copied. A cache of keys and values, into which
a step copies one row a head, is read and written faster without them.
"""

from __future__ import annotations

from typing import Any

from torchport.targets.openvino.library import openvino


def copy_rows(model: Any) -> None:
    """Change copies of elements into those of rows, where an index is the same for all elements of a row."""
    for node in model.get_ordered_ops():
        if node.get_type_name() == "ScatterElementsUpdate" and node.get_attributes()["reduction"] == "none":
            index = _index_of_rows(node)
            if index is not None:
                target, _, rows, axis = node.input_values()
                made = openvino().opset13.scatter_update(target, index, rows, axis)
                made.set_friendly_name(node.get_friendly_name())
                node.output(0).replace(made.output(0))


def _index_of_rows(node: Any) -> Any:
    """Return the index of each row; None if that is not how elements are copied.

    Only `index_copy` is written so: an index along one axis, with a size for each axis named. torch takes as
    many indices as rows for it, and rows that are as long as those they replace.
    """
    spread = node.input_value(1).get_node()
    if spread.get_type_name() != "Broadcast" or spread.get_input_size() != 3:
        return None
    index, _, places = spread.input_values()
    rank = index.get_partial_shape().rank
    if rank.is_dynamic or rank.get_length() != 1:
        return None
    axis = _number(node.input_value(3))
    return index if axis is not None and axis >= 0 and _number(places) == axis else None


def _number(port: Any) -> int | None:
    """Return the number that a port always gives; None if it gives another thing."""
    node = port.get_node()
    if node.get_type_name() != "Constant" or node.get_data().size != 1:
        return None
    return int(node.get_data().item())

"""Keeps quantized weights out of kernels that assume a scale for each output.

OpenVINO 2026.4 computes products with 8- and 4-bit weights in kernels that read a scale per output, or per
group of inputs in the weight's last dimension. It also uses them for weights that are multiplied transposed,
whose scales differ along the inner dimension: the results are arbitrary, or the model does not compile.
"""

from __future__ import annotations

from typing import Any

from torchport.targets.openvino.convert_workarounds import above_lowest

_NARROW = frozenset({"i8", "u8", "i4", "u4"})


def separate_inner_scales(model: Any) -> None:
    """Have products compute in floats if a quantized weight's scales differ along the inner dimension."""
    for node in model.get_ordered_ops():
        if node.get_type_name() == "MatMul" and _has_inner_scales(node):
            weight = node.input_value(1)
            node.input(1).replace_source_output(above_lowest(weight).output(0))


def _has_inner_scales(product: Any) -> bool:
    found = product.input_value(1).get_node()
    rank = _rank(found)
    if rank < 2:
        return False
    inner = rank - 1 if product.get_attributes()["transpose_b"] else rank - 2
    differs = False
    while found.get_type_name() != "Constant":
        kind = found.get_type_name()
        if kind == "Transpose":
            order = found.input_value(1).get_node()
            if order.get_type_name() != "Constant":
                return False
            inner = int(order.get_data()[inner])
        elif kind == "Reshape":  # it joins the groups of the last dimension
            differs, inner = differs or inner < _rank(found) - 1, _rank(found.input_value(0).get_node()) - 1
        elif kind == "Multiply":
            differs = differs or _size(found, inner) > 1
        elif kind not in ("Convert", "Subtract"):
            return False
        found = found.input_value(0).get_node()
    return differs and found.get_element_type().get_type_name() in _NARROW


def _rank(node: Any) -> int:
    shape = node.get_output_partial_shape(0)
    return -1 if shape.rank.is_dynamic else int(shape.rank.get_length())


def _size(multiply: Any, dim: int) -> int:
    """Return the size of a constant factor in a dimension of its product; 1 if it is not a constant."""
    factor = multiply.input_value(1).get_node()
    while factor.get_type_name() == "Convert":
        factor = factor.input_value(0).get_node()
    if factor.get_type_name() != "Constant":
        return 1
    shape = [1] * _rank(multiply) + list(factor.get_output_shape(0))
    return int(shape[dim - _rank(multiply)])

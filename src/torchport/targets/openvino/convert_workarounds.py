"""Works around OpenVINO converting the wrong operand of an elementwise op.

OpenVINO 2026.4 fuses a conversion into the elementwise op that reads it. On ARM, where that op has open sizes
or integer operands, it then converts the first input, whichever input was meant: `x + mask.to(x.dtype)` loses
the fraction of `x`, or all but eight bits. So the conversion is made the first input, or another op is put in
between; the results stay the same.
"""

from __future__ import annotations

from typing import Any

import numpy

from torchport.errors import TargetError
from torchport.targets.openvino.library import openvino

# The op that gives the same result with swapped inputs.
_SWAPPED = {
    "Add": "Add",
    "Multiply": "Multiply",
    "Maximum": "Maximum",
    "Minimum": "Minimum",
    "SquaredDifference": "SquaredDifference",
    "Equal": "Equal",
    "NotEqual": "NotEqual",
    "Greater": "Less",
    "Less": "Greater",
    "GreaterEqual": "LessEqual",
    "LessEqual": "GreaterEqual",
    "LogicalAnd": "LogicalAnd",
    "LogicalOr": "LogicalOr",
    "LogicalXor": "LogicalXor",
    "BitwiseAnd": "BitwiseAnd",
    "BitwiseOr": "BitwiseOr",
    "BitwiseXor": "BitwiseXor",
}
# OpenVINO rewrites these as products with the second input first.
_SAFE = frozenset({"Subtract", "Divide"})
_OTHERS = frozenset({"Power", "Mod", "FloorMod"})
_CREATE = {"Less": "less", "Greater": "greater", "LessEqual": "less_equal", "GreaterEqual": "greater_equal"}

# Ops whose results have no fraction.
_WHOLE = frozenset({"Floor", "Ceiling", "Round"})

_LOWEST = {
    "f16": -65504.0,
    "bf16": -3.3895313892515355e38,
    "f32": -3.4028234663852886e38,
    "f64": -1.7976931348623157e308,
}


def truncate_conversions(model: Any) -> None:
    """Truncate floats explicitly before they are converted to integers.

    Where OpenVINO fuses such a conversion into the op that reads it, ARM's kernels round to nearest.
    """
    opset = openvino().opset13
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Convert":
            continue
        source, made = node.input_value(0), node.get_output_element_type(0)
        if not source.get_element_type().is_real() or not made.is_integral_number():
            continue
        if source.get_node().get_type_name() in _WHOLE:
            continue
        whole = opset.multiply(opset.floor(opset.abs(source)), opset.sign(source))
        node.input(0).replace_source_output(whole.output(0))


def place_conversions(model: Any, *, is_open: bool) -> None:
    """Rewrite a model so that no elementwise op has a conversion as its second input.

    Args:
        model: the model, changed in place.
        is_open: whether it has open sizes; otherwise only conversions to integers and booleans are affected.

    Raises:
        TargetError: an op cannot be rewritten.
    """
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind in _SWAPPED or kind in _SAFE or kind in _OTHERS:
            second = node.input_value(1).get_node()
            is_float = second.get_output_element_type(0).is_real()
            if second.get_type_name() == "Convert" and (is_open or not is_float):
                _place(node, kind, second)


def _place(node: Any, kind: str, conversion: Any) -> None:
    both_are = node.input_value(0).get_node().get_type_name() == "Convert"
    if kind in _SWAPPED and not both_are:
        _swap(node, kind)
    elif not conversion.input_value(0).get_element_type().is_real():
        node.input(1).replace_source_output(above_lowest(conversion.output(0)).output(0))
    elif not both_are and kind not in _SAFE:  # if both are conversions, only one of integers is fused
        raise TargetError(
            f"OpenVINO's {kind} misreads a converted tensor as its second input", where="openvino"
        )


def _swap(node: Any, kind: str) -> None:
    first, second = node.input_value(0), node.input_value(1)
    if _SWAPPED[kind] == kind:
        node.input(0).replace_source_output(second)
        node.input(1).replace_source_output(first)
        return
    made = getattr(openvino().opset13, _CREATE[_SWAPPED[kind]])(second, first)
    made.set_friendly_name(node.get_friendly_name())
    node.output(0).replace(made.output(0))


def above_lowest(source: Any) -> Any:
    """Return a tensor clamped to its dtype's lowest value: a no-op that prevents fusion."""
    kind = source.get_element_type()
    lowest = _LOWEST.get(kind.get_type_name())
    if lowest is None:
        lowest = numpy.iinfo(kind.to_dtype()).min
    return openvino().opset13.maximum(source, openvino().opset13.constant(lowest, dtype=kind))

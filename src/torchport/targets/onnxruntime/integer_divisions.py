"""Refuses integer divisions that could end the process: by 0, or of the lowest integer by -1.

onnxruntime divides integers with the processor's instruction, which traps for both. So an integer divisor
must be a constant without these two, or be clamped to 1 and more, or to -2 and less; see
`bounded_divisors.py`.
"""

from __future__ import annotations

from typing import Any

import numpy

from torchport.targets.onnxruntime.library import library

_FLOAT = 1  # ONNX's number for float32
_DIVISIONS = ("Div", "Mod")
# Ops whose first output has another element type than their first input, and the input that has the same.
_OTHER_TYPES: dict[str, int | None] = {
    "And": None, "ArgMax": None, "ArgMin": None, "Cast": None, "CastLike": 1, "Constant": None,
    "ConstantOfShape": None, "DequantizeLinear": 1, "Equal": None, "EyeLike": None, "Greater": None,
    "GreaterOrEqual": None, "IsInf": None, "IsNaN": None, "Less": None, "LessOrEqual": None, "OneHot": 2,
    "Or": None, "QuantizeLinear": None, "RMSNormalization": 1, "Shape": None, "Size": None, "Where": 1,
    "Xor": None,
}  # fmt: skip


class Divisions:
    """Follows which tensors hold floats through a graph's nodes, in their order."""

    def __init__(self, graph: Any) -> None:
        self._floats = {each.name for each in graph.input if each.type.tensor_type.elem_type == _FLOAT}
        self._constants = {each.name: each for each in graph.initializer}
        self._floats |= {name for name, each in self._constants.items() if each.data_type == _FLOAT}
        # The outputs of nodes that clamp integers to either side of 0 and -1.
        self._bounded: set[str] = set()

    def allow(self, node: Any) -> bool:
        """Note what a node gives; return whether it is safe."""
        stated = {attribute.name: attribute for attribute in node.attribute}
        if node.op_type == "Constant" and "value" in stated:
            self._constants[node.output[0]] = stated["value"].t
        if self._gives_floats(node, stated):
            given = node.output if node.op_type == "Split" else node.output[:1]
            self._floats.update(name for name in given if name)
        elif self._is_clamped(node):
            self._bounded.add(node.output[0])
        is_division = node.op_type in _DIVISIONS and node.output[0] not in self._floats
        return not is_division or (len(node.input) == 2 and self._is_safe(node.input[1]))

    def _gives_floats(self, node: Any, stated: dict[str, Any]) -> bool:
        kind = node.op_type
        if kind == "Constant":
            return "value" in stated and stated["value"].t.data_type == _FLOAT
        if kind == "Cast":
            return "to" in stated and stated["to"].i == _FLOAT
        place = _OTHER_TYPES.get(kind, 0)
        return place is not None and len(node.input) > place and node.input[place] in self._floats

    def _is_safe(self, name: str) -> bool:
        values = self._values(name)
        if values is None:
            return name in self._bounded
        return values.dtype.kind in "iu" and not ((values == 0) | (values == -1)).any()

    def _is_clamped(self, node: Any) -> bool:
        """Whether a node clamps integers to 1 and more, or to -2 and less."""
        kind, inputs = node.op_type, list(node.input)
        if kind == "Clip" and not (any(inputs[1:2]) and any(inputs[2:3])):  # else they could be the wrong way
            return self._lies("".join(inputs[1:2]), low=1) or self._lies("".join(inputs[2:3]), high=-2)
        if kind == "Max":
            return any(self._lies(name, low=1) for name in inputs)
        return kind == "Min" and any(self._lies(name, high=-2) for name in inputs)

    def _lies(self, name: str, *, low: int | None = None, high: int | None = None) -> bool:
        """Whether a tensor is constant integers within bounds."""
        values = self._values(name)
        if values is None or values.dtype.kind not in "iu" or not values.size:
            return False
        return (low is None or int(values.min()) >= low) and (high is None or int(values.max()) <= high)

    def _values(self, name: str) -> numpy.ndarray[Any, Any] | None:
        tensor = self._constants.get(name)
        if tensor is None:
            return None
        values: numpy.ndarray[Any, Any] = library("onnx").numpy_helper.to_array(tensor)
        return values

"""Comparisons, and logic on booleans; the device's booleans are zeros and ones in bfloat16."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import Lowering, Result, arguments, torch_value
from torchport.targets.ttnn.operand_forms import common_dtype, elementwise, meeting_dtype, number_in
from torchport.targets.ttnn.ops.arithmetic import binary
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import lowers
from torchport.targets.ttnn.ttnn_program import Dtype, Name

_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


@lowers(
    "eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar "
    "ge.Tensor ge.Scalar",
    "fib",
)
def _compare(lowering: Lowering, node: fx.Node) -> Result:
    given = arguments(node)
    left, right = given["self"], number_in(lowering, given["other"])
    function = str(node.target).split(".")[1]
    kind = common_dtype((left, right))
    dtype: Dtype = "bfloat16" if kind is torch.bool else meeting_dtype(lowering, (left, right), kind)
    if dtype == "int32" and isinstance(right, int) and abs(right) >= 2**31:
        refuse("integer_range", f"integers are compared with {right}")

    def compute(a: Value, b: Any) -> Value:
        other = b if isinstance(b, Value) else (int(b) if dtype == "int32" else float(b))
        return _mask(lowering, function, a, other, dtype)

    return elementwise(lowering, node, (left, right), (dtype, dtype), compute)


def _mask(lowering: Lowering, function: str, left: Value, right: object, dtype: Dtype) -> Value:
    return lowering.call(function, left, right, dtype=None if dtype == "bfloat16" else Name("bfloat16"))


@lowers("logical_and.default logical_or.default logical_xor.default", "b")
def _logic(lowering: Lowering, node: fx.Node) -> Result:
    given = arguments(node)
    function = str(node.target).split(".")[1]
    return _on_masks(lowering, node, given["self"], given["other"], function)


@lowers("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", "ib")
def _bits(lowering: Lowering, node: fx.Node) -> Result:
    given = arguments(node)
    function = str(node.target).split(".")[1]
    if torch_value(node).dtype is torch.bool:
        return _on_masks(
            lowering, node, given["self"], given["other"], function.replace("bitwise", "logical")
        )
    return binary(lowering, node, given["self"], given["other"], function)


def _on_masks(lowering: Lowering, node: fx.Node, left: object, right: object, function: str) -> Result:
    return elementwise(
        lowering, node, (left, right), ("bfloat16", "bfloat16"), lambda a, b: lowering.call(function, a, b)
    )

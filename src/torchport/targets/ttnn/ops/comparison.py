"""Lowers comparisons and boolean logic; the device's booleans are zeros and ones in bfloat16."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import Lowering, Result, finite_in, packet, torch_value
from torchport.targets.ttnn.operand_forms import common_dtype, elementwise, meeting_dtype, number_in
from torchport.targets.ttnn.ops.arithmetic import binary, on_masks
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers
from torchport.targets.ttnn.ttnn_program import Dtype, Name


@lowers(
    "eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar "
    "ge.Tensor ge.Scalar",
    "fib",
)
def _compare(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    left, right = given["self"], number_in(lowering, given["other"])
    kind = common_dtype((left, right))
    dtype: Dtype = "bfloat16" if kind is torch.bool else meeting_dtype(lowering, (left, right), kind)
    if not torch_value(left).is_floating_point() and isinstance(right, float) and not _is_short(right):
        dtype = "float32"  # rounded, the number could be one of the integers
    if dtype == "int32" and isinstance(right, int) and abs(right) >= 2**31:
        refuse("integer_range", f"integers are compared with {right}, which is outside ±(2**31 - 1)")

    def compute(a: Value, b: Any) -> Value:
        other = b if isinstance(b, Value) else (int(b) if dtype == "int32" else finite_in(float(b), dtype))
        return lowering.call(packet(node), a, other, dtype=None if dtype == "bfloat16" else Name("bfloat16"))

    return elementwise(lowering, node, (left, right), (dtype, dtype), compute)


def _is_short(number: float) -> bool:
    """Whether bfloat16 represents a number exactly."""
    return torch.tensor(number).to(torch.bfloat16).item() == number


@lowers("logical_and.default logical_or.default logical_xor.default", "b")
@lowers("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", "ib")
def _logic(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    operands = (given["self"], given["other"])
    if torch_value(node).dtype is not torch.bool:
        return binary(lowering, node, *operands, packet(node))
    return on_masks(lowering, node, operands, packet(node).replace("bitwise", "logical"))

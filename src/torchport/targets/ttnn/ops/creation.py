"""Ops that make tensors; those of fixed shape and value are folded before any verdict is asked."""

from __future__ import annotations

import math

from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import TILE_LAYOUT, Lowering, Result, arguments, torch_value
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import lowers
from torchport.targets.ttnn.ttnn_program import DEVICE, Name


def filled(lowering: Lowering, node: fx.Node, value: object) -> Value:
    """Add a tensor of one value, in a node's shape and dtype."""
    if not isinstance(value, (bool, int, float)) or math.isnan(value):
        refuse("argument", f"the value is {value!r}")
    dtype = lowering.device_dtype(node)
    number: int | float = float(value)
    if dtype == "int32":
        if not float(value).is_integer() or abs(value) >= 2**31:
            refuse("integer_range", f"the value is {value!r}")
        number = int(value)
    return lowering.call(
        "full", tuple(torch_value(node).shape), number, dtype=Name(dtype), layout=TILE_LAYOUT, device=DEVICE
    )


@lowers("full.default full_like.default", "fib")
def _full(lowering: Lowering, node: fx.Node) -> Result:
    return filled(lowering, node, arguments(node)["fill_value"])


@lowers("zeros_like.default", "fib")
def _zeros(lowering: Lowering, node: fx.Node) -> Result:
    return filled(lowering, node, 0)


@lowers("ones_like.default", "fib")
def _ones(lowering: Lowering, node: fx.Node) -> Result:
    return filled(lowering, node, 1)

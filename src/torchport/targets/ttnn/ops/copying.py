"""Lowers ops that copy, cast or create tensors.

Ops that create tensors of fixed shape and value are constant-folded before any verdict is requested.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import Formed, Lowering, Result, packet, torch_value
from torchport.targets.ttnn.operand_forms import elementwise
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers
from torchport.targets.ttnn.ttnn_program import Dtype, Name


@lowers("clone.default", "fib")
def _clone(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    """Return the operand itself: nothing on the device is changed in place, so no copy is needed."""
    return same(lowering, node, node.args[0])


def same(lowering: Lowering, node: fx.Node, source: object) -> Result:
    """Return the value of a source of the same shape as a node's value."""
    if lowering.only_last(source):
        return Formed(lowering.get(source, form="last"), "last")
    return lowering.get(source)


@lowers("_to_copy.default", "fib")
def _to_copy(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    extra = {key for key in ("pin_memory", "non_blocking") if given[key]}
    if extra:
        refuse("argument", f"{', '.join(sorted(extra))} is not supported")
    source = given["self"]
    old, new = torch_value(source).dtype, torch_value(node).dtype
    if old == new:
        return same(lowering, node, source)
    if new is torch.bool:
        return elementwise(lowering, node, (source,), (None,), lambda a: _as_mask(lowering, a))
    dtype: Dtype = lowering.dtype_for(new)
    if new is torch.float32 and not old.is_floating_point and old is not torch.bool:
        dtype = lowering.exact_float(source)
    # Casts of floats to integers that could overflow have been refused already, since they have no bounds.
    return elementwise(lowering, node, (source,), (dtype,), lambda a: a)


def _as_mask(lowering: Lowering, value: Value) -> Value:
    zero: int | float = 0 if value.dtype == "int32" else 0.0
    return lowering.call("ne", value, zero, dtype=None if value.dtype == "bfloat16" else Name("bfloat16"))


def _filled(lowering: Lowering, node: fx.Node, value: object) -> Value:
    """Add a tensor filled with one value, in a node's shape and dtype."""
    if not isinstance(value, (bool, int, float)) or math.isnan(value):
        refuse("argument", f"the value is {value!r}")
    dtype = lowering.device_dtype(node)
    number: int | float = float(bool(value) if torch_value(node).dtype is torch.bool else value)
    if dtype == "int32":
        if not float(value).is_integer() or abs(value) >= 2**31:
            refuse("integer_range", f"the value is {value!r}")
        number = int(value)
    return lowering.full(torch_value(node).shape, number, dtype)


@lowers("full.default full_like.default", "fib")
def _full(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return _filled(lowering, node, given["fill_value"])


@lowers("zeros_like.default ones_like.default", "fib")
def _uniform(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return _filled(lowering, node, int(packet(node) == "ones_like"))

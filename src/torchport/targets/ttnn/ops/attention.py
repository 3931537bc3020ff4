"""Lowers attention, to one kernel where its shapes allow it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import Lowering, Result, torch_value
from torchport.targets.ttnn.ops.matrix import is_weight
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers
from torchport.targets.ttnn.ttnn_program import TILE, Dtype


@lowers("scaled_dot_product_attention.default", "fb")
def _attention(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    if given["dropout_p"]:
        refuse("random", "dropout draws random numbers", "call model.eval() first")
    query, key, value = (torch_value(given[name]) for name in ("query", "key", "value"))
    if query.dim() not in (3, 4) or query.dim() != key.dim() or query.dim() != value.dim():
        refuse("shape", "attention operands do not all have three or all four dimensions")
    if query.shape[0] != key.shape[0] or key.shape[0] != value.shape[0]:
        refuse("shape", "attention operands have different batch sizes")
    dtype = lowering.device_dtype(node)
    scale = given["scale"] if given["scale"] is not None else 1 / math.sqrt(query.shape[-1])
    operands = [_four(lowering, lowering.get(given[name], dtype)) for name in ("query", "key", "value")]
    mask = _mask(lowering, given, dtype)
    heads = [item.shape[1] for item in operands]
    grouped = heads[1] == 1 or given["enable_gqa"]  # a single key head broadcasts to all queries anyway
    if heads[1] != heads[2] or heads[0] % heads[1] or (heads[0] != heads[1] and not grouped):
        refuse("shape", "the numbers of heads of queries, keys and values do not match")
    if _one_kernel(operands, given["is_causal"], mask):
        result = lowering.precise(
            "transformer.scaled_dot_product_attention", *operands, is_causal=bool(given["is_causal"]),
            attn_mask=mask and _full(lowering, mask, operands), scale=float(scale), wish="attention",
        )  # fmt: skip
    else:
        result = _step_by_step(lowering, operands, mask, given["is_causal"], float(scale), dtype)
    return lowering.reshaped(result, tuple(torch_value(node).shape))


def _four(lowering: Lowering, value: Value) -> Value:
    """Return a value with four dimensions; a batch without heads gets one head each."""
    if len(value.shape) == 4:
        return value
    return lowering.reshaped(value, (value.shape[0], 1, *value.shape[1:]))


def _one_kernel(operands: list[Value], causal: bool, mask: Value | None) -> bool:
    query, key, value = operands
    return (
        query.dtype == "bfloat16"
        and key.shape == value.shape
        and query.shape[-1] % TILE == 0
        and not (causal and (mask is not None or query.shape[2] != key.shape[2]))
    )


def _mask(lowering: Lowering, given: dict[str, Any], dtype: Dtype) -> Value | None:
    """Return the mask with four dimensions, as numbers added to the scores; None if there is none."""
    mask = given["attn_mask"]
    if mask is None:
        return None
    if given["is_causal"]:
        refuse("argument", "a mask is given together with is_causal")
    shape = tuple(torch_value(mask).shape)
    query_rank = torch_value(given["query"]).dim()
    four = (1,) * (4 - len(shape)) + shape
    if query_rank == 3 and len(shape) == 3:
        four = (shape[0], 1, *shape[1:])
    if torch_value(mask).dtype is not torch.bool:
        return lowering.reshaped(lowering.get(mask, dtype), four)
    if is_weight(mask):
        added = lowering.computed((mask,), _as_numbers, "added to scores", dtype=dtype)
        return lowering.reshaped(added, four)
    value = lowering.get(mask, dtype)
    zero = lowering.full(value.shape, 0.0, dtype)
    return lowering.reshaped(lowering.call("where", value, zero, -math.inf), four)


def _as_numbers(mask: torch.Tensor) -> torch.Tensor:
    return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -math.inf)


def _full(lowering: Lowering, mask: Value, operands: list[Value]) -> Value:
    """Return a mask expanded to a row for each query and a column for each key."""
    wanted = (*mask.shape[:2], operands[0].shape[2], operands[1].shape[2])
    return mask if mask.shape == wanted else lowering.call("expand", mask, wanted)


def _step_by_step(
    lowering: Lowering, operands: list[Value], mask: Value | None, causal: bool, scale: float, dtype: Dtype
) -> Value:
    query, key, value = operands
    if query.shape[1] != key.shape[1]:
        times = query.shape[1] // key.shape[1]
        key = lowering.call("repeat_interleave", key, times, dim=1)
        value = lowering.call("repeat_interleave", value, times, dim=1)
    scores = lowering.call("mul", lowering.precise("matmul", query, key, transpose_b=True), scale)
    shown = None
    if mask is not None:  # torch returns zeros for queries that all keys are hidden from, softmax NaN
        shown = lowering.call("ne", lowering.call("max", mask, dim=(3,), keepdim=True), -math.inf)
        mask = lowering.call("where", shown, mask, 0.0)
    if causal:
        rows, columns = query.shape[2], key.shape[2]
        causal_mask = _as_numbers(torch.ones(1, 1, rows, columns, dtype=torch.bool).tril())
        mask = lowering.constant(causal_mask, ("causal", rows, columns), "causal_mask", dtype)
    if mask is not None:
        scores = lowering.call("add", scores, mask)
    chances = lowering.precise("softmax", scores, dim=3, numeric_stable=True)
    if shown is not None:  # a product, so that an infinite input makes the result NaN, as in torch
        chances = lowering.call("mul", chances, shown)
    return lowering.precise("matmul", chances, value)

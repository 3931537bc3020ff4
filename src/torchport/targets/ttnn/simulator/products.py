"""Simulated matrix products and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from torchport.targets.ttnn.functions import function
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.elementwise import activation
from torchport.targets.ttnn.simulator.tensors import (
    FLOATS,
    Held,
    Made,
    hold,
    need_dtype,
    need_same_precision,
    need_tile,
)
from torchport.targets.ttnn.ttnn_program import TILE, Call, DeviceTensor, Ref


def _product_flops(call: Call, tensors: Mapping[str, DeviceTensor]) -> float:
    left = call.args[0]
    assert isinstance(left, Ref)
    return 2.0 * math.prod(call.tensors[0].padded) * tensors[left.name].padded[-1]


def _attention_flops(call: Call, tensors: Mapping[str, DeviceTensor]) -> float:
    key = call.args[1]
    assert isinstance(key, Ref)
    return 4.0 * math.prod(call.tensors[0].padded) * tensors[key.name].padded[-2]


def _check(left: Held, right: Held) -> None:
    need_tile(left, right)
    need_dtype(left, *FLOATS)
    need_dtype(right, *FLOATS)
    need_same_precision(left, right)
    if left.data.dim() < 2 or right.data.dim() < 2 or left.data.dim() > 5:
        refuse("shape", "the operands of a product are not matrices, or have more than five dimensions")
    ours, theirs = left.shape[:-2], right.shape[:-2]
    one_sided = (not any(size != 1 for size in theirs) and len(theirs) <= len(ours)) or (
        not any(size != 1 for size in ours) and len(ours) == len(theirs) > 0
    )
    if ours != theirs and not one_sided:
        refuse("shape", "both operands of a product are broadcast over batch dimensions")


@function("matmul", placeable=True, flops=_product_flops)
def matmul(left: Held, right: Held, *, transpose_b: bool = False, compute_kernel_config: str = "") -> Held:
    """Multiply two matrices, or two batches of them."""
    _check(left, right)
    other = right.data.transpose(-1, -2) if transpose_b else right.data
    return hold(torch.matmul(left.data, other), left.dtype)


@function("linear", placeable=True, flops=_product_flops)
def linear(
    left: Held,
    right: Held,
    *,
    bias: Held | None = None,
    transpose_b: bool = False,
    activation: Made | str | None = None,
    compute_kernel_config: str = "",
) -> Held:
    """Multiply with a weight matrix, add a row of biases, and apply an activation."""
    _check(left, right)
    if right.data.dim() != 2:
        refuse("shape", "the weight of a linear layer is not a matrix")
    weight = right.data if transpose_b else right.data.transpose(-1, -2)
    if bias is not None:
        need_tile(bias)
        if bias.data.numel() != weight.shape[0] or bias.dtype not in FLOATS:
            refuse("shape", "the bias is not a row of floats")
        need_same_precision(left, bias)
    row = None if bias is None else bias.data.reshape(-1)
    result = torch.nn.functional.linear(left.data, weight, row)
    return hold(_activate(result, activation), left.dtype)


_activation = activation


def _activate(data: torch.Tensor, made: Made | str | None) -> torch.Tensor:
    return data if made is None else _activation(made)(data)


@function("transformer.scaled_dot_product_attention", placeable=False, flops=_attention_flops)
def attention(
    query: Held,
    key: Held,
    value: Held,
    *,
    is_causal: bool,
    attn_mask: Held | None = None,
    scale: float,
    compute_kernel_config: str = "",
) -> Held:
    """Compute softmax(query keyᵀ scale + mask) value, without materializing the scores."""
    for item in (query, key, value):
        need_tile(item)
        need_dtype(item, "bfloat16", "bfloat8_b")
        if item.data.dim() != 4 or item.shape[-1] % TILE:
            refuse("shape", "attention needs four dimensions and a head size that is a multiple of 32")
    batch, heads, length, width = query.shape
    if key.shape != value.shape or key.shape[0] != batch or heads % key.shape[1] or key.shape[3] != width:
        refuse("shape", "the shapes of queries, keys and values do not match")
    if is_causal and (attn_mask is not None or key.shape[2] != length):
        refuse("argument", "causal attention takes no mask, and needs as many keys as queries")
    mask = None
    if attn_mask is not None:
        need_tile(attn_mask)
        need_dtype(attn_mask, "bfloat16", "bfloat8_b")
        mask = attn_mask.data
        if mask.dim() != 4 or mask.shape[2:] != (length, key.shape[2]):
            refuse("shape", "the mask does not have one number for each query and key")
        if mask.shape[0] not in (1, batch) or mask.shape[1] not in (1, heads):
            refuse("shape", "the mask does not match the batch size or the number of heads")
    result = torch.nn.functional.scaled_dot_product_attention(
        query.data, key.data, value.data, mask, is_causal=is_causal, scale=scale,
        enable_gqa=heads != key.shape[1],
    )  # fmt: skip
    return hold(result, query.dtype)

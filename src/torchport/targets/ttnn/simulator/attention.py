"""Simulated attention."""

from __future__ import annotations

import torch

from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.registry import kernel
from torchport.targets.ttnn.simulator.tensors import Held, hold, need_dtype, need_tile
from torchport.targets.ttnn.ttnn_program import TILE


@kernel("transformer.scaled_dot_product_attention")
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
    """softmax(query keyᵀ scale + mask) value, without the matrix in between."""
    for item in (query, key, value):
        need_tile(item)
        need_dtype(item, "bfloat16", "bfloat8_b")
        if item.data.dim() != 4 or item.shape[-1] % TILE:
            refuse("shape", "heads are not of a multiple of 32 numbers in four dimensions")
    batch, heads, length, width = query.shape
    if key.shape != value.shape or key.shape[0] != batch or heads % key.shape[1] or key.shape[3] != width:
        refuse("shape", "queries, keys and values do not fit")
    if is_causal and (attn_mask is not None or key.shape[2] != length):
        refuse("argument", "causal attention takes no mask, and as many keys as queries")
    mask = None
    if attn_mask is not None:
        need_tile(attn_mask)
        need_dtype(attn_mask, "bfloat16", "bfloat8_b")
        mask = attn_mask.data
        if mask.dim() != 4 or mask.shape[2:] != (length, key.shape[2]):
            refuse("shape", "the mask is not one number for each query and key")
        if mask.shape[0] not in (1, batch) or mask.shape[1] not in (1, heads):
            refuse("shape", "the mask fits neither all heads nor each")
    result = torch.nn.functional.scaled_dot_product_attention(
        query.data, key.data, value.data, mask, is_causal=is_causal, scale=scale,
        enable_gqa=heads != key.shape[1],
    )  # fmt: skip
    return hold(result, query.dtype)

"""Simulated normalisation layers."""

from __future__ import annotations

import torch

from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.registry import kernel
from torchport.targets.ttnn.simulator.tensors import FLOATS, Held, hold, need_dtype, need_tile


def _check(tensor: Held, weight: Held | None, bias: Held | None) -> None:
    need_tile(tensor, weight, bias)
    need_dtype(tensor, *FLOATS)
    if tensor.data.dim() == 0:
        refuse("shape", "a single number is normalised")
    for item in (weight, bias):
        if item is not None and (item.data.numel() != tensor.shape[-1] or item.dtype not in FLOATS):
            refuse("shape", "the scale or shift is not one number for each of the last dimension")


def _row(item: Held | None) -> torch.Tensor | None:
    return None if item is None else item.data.reshape(-1)


@kernel("layer_norm")
def layer_norm(
    tensor: Held,
    *,
    epsilon: float,
    weight: Held | None = None,
    bias: Held | None = None,
    compute_kernel_config: str = "",
) -> Held:
    """Normalises the last dimension to mean 0 and variance 1, scales and shifts."""
    _check(tensor, weight, bias)
    size = [tensor.shape[-1]]
    result = torch.nn.functional.layer_norm(tensor.data, size, _row(weight), _row(bias), epsilon)
    return hold(result, tensor.dtype)


@kernel("rms_norm")
def rms_norm(
    tensor: Held, *, epsilon: float, weight: Held | None = None, compute_kernel_config: str = ""
) -> Held:
    """Divides the last dimension by the root of its mean square, and scales."""
    _check(tensor, weight, None)
    data = tensor.data
    result = data * torch.rsqrt(data.square().mean(-1, keepdim=True) + epsilon)
    row = _row(weight)
    return hold(result if row is None else result * row, tensor.dtype)

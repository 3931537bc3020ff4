"""Simulated reductions, scans and normalisation layers."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchport.targets.ttnn.functions import function
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.tensors import FLOATS, Held, hold, need_dtype, need_rank, need_tile

Dims = tuple[int, ...]


def _reduction(name: str, compute: Callable[..., torch.Tensor], *dtypes: str) -> None:
    """Register a function that reduces some dimensions."""

    @function(name, placeable=False, flops=None)
    def kernel(tensor: Held, *, dim: Dims, keepdim: bool) -> Held:
        need_dtype(tensor, *dtypes)
        return _reduced(tensor, dim, keepdim, compute)


def _reduced(
    tensor: Held, dim: Dims, keepdim: bool, compute: Callable[..., torch.Tensor], **more: int
) -> Held:
    need_rank(tensor)
    need_tile(tensor)
    if tensor.data.dim() == 0 or not dim:
        refuse("shape", "a scalar, or no dimension, is reduced")
    return hold(compute(tensor.data, dim, keepdim=keepdim, **more), tensor.dtype)


_reduction("sum", torch.sum, *FLOATS, "int32")
_reduction("mean", torch.mean, *FLOATS)
_reduction("max", torch.amax, *FLOATS, "int32")
_reduction("min", torch.amin, *FLOATS, "int32")


@function("var", placeable=False, flops=None)
def var(tensor: Held, *, dim: Dims, keepdim: bool, correction: bool) -> Held:
    """Compute the variance, dividing by the number of elements or by one less."""
    need_dtype(tensor, *FLOATS)
    return _reduced(tensor, dim, keepdim, torch.var, correction=int(correction))


@function("cumsum", placeable=False, flops=None)
def cumsum(tensor: Held, dim: int) -> Held:
    """Compute cumulative sums along a dimension."""
    need_tile(tensor)
    need_dtype(tensor, "bfloat16", "float32", "int32")
    if not 1 <= tensor.data.dim() <= 5:
        refuse("shape", "ttnn.cumsum needs one to five dimensions")
    return hold(torch.cumsum(tensor.data, dim), tensor.dtype)


@function("argmax", placeable=False, flops=None)
def argmax(tensor: Held, *, dim: int, keepdim: bool) -> Held:
    """Return the index of the first maximum along the last dimension of a row-major tensor."""
    if tensor.layout != "row_major" or dim not in (-1, tensor.data.dim() - 1):
        refuse("argument", "ttnn.argmax needs a row-major tensor and its last dimension")
    need_dtype(tensor, "bfloat16", "float32", "int32")
    return hold(torch.argmax(tensor.data, dim, keepdim=keepdim), "uint32", "row_major")


@function("softmax", placeable=True, flops=None)
def softmax(tensor: Held, *, dim: int, numeric_stable: bool = True, compute_kernel_config: str = "") -> Held:
    """Compute exponentials scaled to sum to one."""
    need_tile(tensor)
    need_dtype(tensor, *FLOATS)
    if tensor.data.dim() == 0:
        refuse("shape", "the softmax of a scalar is taken")
    return hold(torch.softmax(tensor.data, dim), tensor.dtype)


def _check(tensor: Held, weight: Held | None, bias: Held | None) -> None:
    need_tile(tensor, weight, bias)
    need_dtype(tensor, *FLOATS)
    if tensor.data.dim() == 0:
        refuse("shape", "a scalar is normalised")
    for item in (weight, bias):
        if item is not None and (item.data.numel() != tensor.shape[-1] or item.dtype not in FLOATS):
            refuse("shape", "the scale or shift does not match the last dimension, or is not a float")


def _row(item: Held | None) -> torch.Tensor | None:
    return None if item is None else item.data.reshape(-1)


@function("layer_norm", placeable=True, flops=None)
def layer_norm(
    tensor: Held,
    *,
    epsilon: float,
    weight: Held | None = None,
    bias: Held | None = None,
    compute_kernel_config: str = "",
) -> Held:
    """Normalise the last dimension to mean 0 and variance 1, then scale and shift."""
    _check(tensor, weight, bias)
    size = [tensor.shape[-1]]
    result = torch.nn.functional.layer_norm(tensor.data, size, _row(weight), _row(bias), epsilon)
    return hold(result, tensor.dtype)


@function("rms_norm", placeable=True, flops=None)
def rms_norm(
    tensor: Held, *, epsilon: float, weight: Held | None = None, compute_kernel_config: str = ""
) -> Held:
    """Divide the last dimension by its root mean square, then scale."""
    _check(tensor, weight, None)
    data = tensor.data
    result = data * torch.rsqrt(data.square().mean(-1, keepdim=True) + epsilon)
    row = _row(weight)
    return hold(result if row is None else result * row, tensor.dtype)

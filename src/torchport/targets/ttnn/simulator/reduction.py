"""Simulated reductions and scans."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.registry import kernel
from torchport.targets.ttnn.simulator.tensors import FLOATS, Held, hold, need_dtype, need_rank, need_tile

Dims = tuple[int, ...]


def _reduced(
    tensor: Held, dim: Dims, keepdim: bool, compute: Callable[[torch.Tensor, Dims, bool], torch.Tensor]
) -> Held:
    need_rank(tensor)
    need_tile(tensor)
    if tensor.data.dim() == 0 or not dim:
        refuse("shape", "a single number is reduced")
    return hold(compute(tensor.data, dim, keepdim), tensor.dtype)


@kernel("sum")
def sum_(tensor: Held, *, dim: Dims, keepdim: bool, compute_kernel_config: str = "") -> Held:
    """The sum over some dimensions."""
    need_dtype(tensor, *FLOATS, "int32")
    return _reduced(tensor, dim, keepdim, lambda data, dims, keep: torch.sum(data, dims, keepdim=keep))


@kernel("mean")
def mean(tensor: Held, *, dim: Dims, keepdim: bool, compute_kernel_config: str = "") -> Held:
    """The mean over some dimensions."""
    need_dtype(tensor, *FLOATS)
    return _reduced(tensor, dim, keepdim, lambda data, dims, keep: torch.mean(data, dims, keepdim=keep))


@kernel("max")
def max_(tensor: Held, *, dim: Dims, keepdim: bool) -> Held:
    """The largest over some dimensions."""
    need_dtype(tensor, *FLOATS, "int32")
    return _reduced(tensor, dim, keepdim, lambda data, dims, keep: torch.amax(data, dims, keepdim=keep))


@kernel("min")
def min_(tensor: Held, *, dim: Dims, keepdim: bool) -> Held:
    """The smallest over some dimensions."""
    need_dtype(tensor, *FLOATS, "int32")
    return _reduced(tensor, dim, keepdim, lambda data, dims, keep: torch.amin(data, dims, keepdim=keep))


@kernel("var")
def var(tensor: Held, *, dim: Dims, keepdim: bool, correction: bool) -> Held:
    """The variance, by the number of elements or by one less."""
    need_dtype(tensor, *FLOATS)
    return _reduced(
        tensor, dim, keepdim,
        lambda data, dims, keep: torch.var(data, dims, correction=int(correction), keepdim=keep),
    )  # fmt: skip


@kernel("cumsum")
def cumsum(tensor: Held, dim: int) -> Held:
    """Running sums along a dimension."""
    need_tile(tensor)
    need_dtype(tensor, "bfloat16", "float32", "int32")
    if not 1 <= tensor.data.dim() <= 5:
        refuse("shape", "running sums of none, or of more than five dimensions")
    return hold(torch.cumsum(tensor.data, dim), tensor.dtype)


@kernel("argmax")
def argmax(tensor: Held, *, dim: int, keepdim: bool) -> Held:
    """Where the first of the largest stands, along the last dimension of rows."""
    if tensor.layout != "row_major" or dim not in (-1, tensor.data.dim() - 1):
        refuse("argument", "the largest is looked for in rows")
    need_dtype(tensor, "bfloat16", "float32", "int32")
    return hold(torch.argmax(tensor.data, dim, keepdim=keepdim), "uint32", "row_major")


@kernel("softmax")
def softmax(tensor: Held, *, dim: int, numeric_stable: bool = True, compute_kernel_config: str = "") -> Held:
    """Exponentials, scaled to sum to one."""
    need_tile(tensor)
    need_dtype(tensor, *FLOATS)
    if tensor.data.dim() == 0:
        refuse("shape", "softmax of a single number")
    return hold(torch.softmax(tensor.data, dim), tensor.dtype)

"""Simulated matrix products."""

from __future__ import annotations

import torch

from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.elementwise import activation
from torchport.targets.ttnn.simulator.registry import kernel
from torchport.targets.ttnn.simulator.tensors import (
    FLOATS,
    Held,
    Made,
    hold,
    need_dtype,
    need_same_precision,
    need_tile,
)


def _check(left: Held, right: Held) -> None:
    need_tile(left, right)
    need_dtype(left, *FLOATS)
    need_dtype(right, *FLOATS)
    need_same_precision(left, right)
    if left.data.dim() < 2 or right.data.dim() < 2 or left.data.dim() > 5:
        refuse("shape", "a product of other than matrices")
    ours, theirs = left.shape[:-2], right.shape[:-2]
    one_sided = (not any(size != 1 for size in theirs) and len(theirs) <= len(ours)) or (
        not any(size != 1 for size in ours) and len(ours) == len(theirs) > 0
    )
    if ours != theirs and not one_sided:
        refuse("shape", "the batches of a product are broadcast both ways")


@kernel("matmul")
def matmul(left: Held, right: Held, *, transpose_b: bool = False, compute_kernel_config: str = "") -> Held:
    """The product of two matrices, or of two batches of them."""
    _check(left, right)
    other = right.data.transpose(-1, -2) if transpose_b else right.data
    return hold(torch.matmul(left.data, other), left.dtype)


@kernel("linear")
def linear(
    left: Held,
    right: Held,
    *,
    bias: Held | None = None,
    transpose_b: bool = False,
    activation: Made | str | None = None,
    compute_kernel_config: str = "",
) -> Held:
    """The product with a matrix of weights, a row of biases added, an activation applied."""
    _check(left, right)
    if right.data.dim() != 2:
        refuse("shape", "the weights of a linear layer are no matrix")
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

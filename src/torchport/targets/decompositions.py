"""Ops by their names, and torch's own decompositions of them, for targets to choose from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchport.torch_private import OpOverload, core_aten_decompositions, is_preservable_composite
from torchport.verification import HALVES


@functools.cache
def core_decompositions() -> dict[OpOverload, Callable[..., object]]:
    """Return the decompositions to core ATen of all ops that are not composites.

    Random ops stay whole: decomposed, they would draw different numbers from torch's generator than eager
    torch does.
    """
    table: dict[OpOverload, Callable[..., object]] = {
        op: how
        for op, how in core_aten_decompositions().items()
        if isinstance(op, OpOverload) and torch.Tag.nondeterministic_seeded not in op.tags
    }
    return {
        **table,
        torch.ops.aten.index_add.default: functools.partial(
            _index_add, table[torch.ops.aten.index_add.default]
        ),
        torch.ops.aten.smooth_l1_loss_backward.default: _smooth_l1_loss_backward,
        torch.ops.aten.copy.default: _copy,
        torch.ops.aten.empty.memory_format: _zeros,
        torch.ops.aten.empty_permuted.default: _permuted_zeros,
    }


def _index_add(
    how: Callable[..., Any],
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    tensor: torch.Tensor,
    *,
    alpha: float = 1,
) -> object:
    """Add in float32 if the tensors are in half precision: torch's kernel rounds less than `index_put`'s."""
    if x.dtype not in HALVES:
        return how(x, dim, index, tensor, alpha=alpha)
    return how(x.float(), dim, index, tensor.float(), alpha=alpha).to(x.dtype)


def _smooth_l1_loss_backward(
    gradient: torch.Tensor, given: torch.Tensor, wanted: torch.Tensor, reduction: int, beta: float
) -> torch.Tensor:
    """Return the gradient as torch's kernel computes it: torch's own decomposition turns NaN into 0."""
    mean = 1
    scaled = gradient / given.numel() if reduction == mean else gradient
    apart = given - wanted
    inside = torch.where(apart >= beta, scaled, scaled * apart / beta)
    return torch.where(apart <= -beta, -scaled, inside)


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    """Return the source in the target's shape, dtype and memory order; open strides have no known order."""
    strides = target.stride()
    if not all(isinstance(stride, int) for stride in strides):
        return NotImplemented
    made = source.to(target.dtype).expand(target.shape)
    order = sorted(range(target.dim()), key=lambda dim: -strides[dim])
    if order == list(range(target.dim())):
        return made.clone(memory_format=torch.contiguous_format)
    ordered = made.permute(order).clone(memory_format=torch.contiguous_format)
    return ordered.permute([order.index(dim) for dim in range(target.dim())])


def _zeros(size: Sequence[int], **settings: Any) -> torch.Tensor:
    """Return zeros for memory that is not initialized: on a device, what it held could seem to be NaN."""
    settings.pop("memory_format", None)
    return torch.zeros(size, **settings)


def _permuted_zeros(size: Sequence[int], physical_layout: Sequence[int], **settings: Any) -> torch.Tensor:
    """Return zeros that lie in memory in the order of the dimensions that `physical_layout` tells."""
    zeros = torch.zeros([size[dim] for dim in physical_layout], **settings)
    return zeros.permute([physical_layout.index(dim) for dim in range(len(size))])


def is_composite(op: OpOverload) -> bool:
    """Whether torch decomposes an op itself, unless told to keep it."""
    return bool(is_preservable_composite(op))


def full_names(names: str) -> list[str]:
    """Return the full names of ops; a name without a namespace is in `aten`.

    Example:
        >>> full_names("add.Tensor torchvision.nms.default")
        ['aten.add.Tensor', 'torchvision.nms.default']
    """
    return [name if name.count(".") == 2 else f"aten.{name}" for name in names.split()]


def find_op(name: str) -> OpOverload | None:
    """Return the op of a name such as `aten.linear.default`, or None if this torch does not have it."""
    space, packet, overload = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), packet), overload)  # type: ignore[no-any-return]
    except AttributeError:
        return None

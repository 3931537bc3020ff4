"""Describes a tensor, real or fake, without its values."""

from __future__ import annotations

import functools

import torch

from torchport.records import TensorSpec

UNKNOWN_SIZE = -1  # a size that is known only at run time


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a plain dense array: neither sparse, nested nor quantized."""
    return tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized


def tensor_spec(tensor: torch.Tensor) -> TensorSpec:
    """Return a tensor's shape and dtype; a size known only at run time is `UNKNOWN_SIZE`."""
    if tensor.is_nested:
        return _spec((UNKNOWN_SIZE,) * tensor.dim(), tensor.dtype)  # its components may differ in size
    sizes = tensor.shape
    for size in sizes:
        if type(size) is not int:
            return _spec(tuple(_size(size) for size in sizes), tensor.dtype)
    return _spec(tuple(sizes), tensor.dtype)


@functools.lru_cache(maxsize=65536)
def _spec(shape: tuple[int, ...], dtype: torch.dtype) -> TensorSpec:
    return TensorSpec(shape, str(dtype).removeprefix("torch."))


def _size(size: int | torch.SymInt) -> int:
    """Return a size as a number, without making torch add a guard on it."""
    if isinstance(size, int):
        return size
    node = size.node
    hint = node.hint if node.has_hint() else None
    return hint if isinstance(hint, int) else UNKNOWN_SIZE

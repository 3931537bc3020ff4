"""Samples some elements of each weight's memory: a write through `.data` leaves no other trace.

A weight's sample is a view of its memory, made once. Comparing hundreds of these views takes a few dozen
microseconds as memoryviews; as tensors it would take a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy
import torch

# How many elements of a small and of a large weight are sampled: enough to detect pruning through `.data`,
# and most writes to many rows or columns.
_FEW, _MANY = 2, 16
_LARGE = 4096
# Elements are compared as integers: a NaN equals itself, and 0.0 does not equal -0.0.
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def sample_memory(tensors: Iterable[torch.Tensor]) -> list[memoryview]:
    """Return views of some elements of each tensor in CPU memory.

    They keep the storages alive. Before reading them, check that the tensors' addresses are unchanged: a
    resized storage has freed its old memory.
    """
    return [_sample(tensor) for tensor in tensors if _has_memory(tensor)]


def samples_now(samples: Sequence[memoryview]) -> list[memoryview]:
    """Return copies of the current elements; they equal the views until an element is written."""
    return [numpy.array(view).data for view in samples]


def _has_memory(tensor: torch.Tensor) -> bool:
    if tensor.device.type != "cpu" or not tensor.numel() or not tensor.data_ptr():
        return False
    last = tensor.storage_offset() + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    # Some dtypes pack several elements into a byte.
    return (last + 1) * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _sample(tensor: torch.Tensor) -> memoryview:
    """Return elements along a diagonal, from the first row and column to the last, as one strided view."""
    count = min(_MANY if tensor.numel() >= _LARGE else _FEW, max(tensor.shape, default=1))
    first, step = tensor.storage_offset(), 0
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        apart = _distance(size, count)
        first += (size - 1 - apart * (count - 1)) // 2 * stride
        step += apart * stride
    word = min(tensor.element_size(), 8)
    words = tensor.element_size() // word
    memory = torch.empty(0, dtype=_WORDS[word], device="cpu").set_(tensor.untyped_storage())
    view = memory.as_strided((count, words), (step * words, 1), first * words)
    # Through DLPack: `Tensor.numpy` would make the storage non-resizable.
    return numpy.from_dlpack(view.squeeze(1)).data


def _distance(size: int, count: int) -> int:
    """Return the spacing of `count` sampled indices in a dimension; odd, to hit both even and odd indices."""
    apart = (size - 1) // max(count - 1, 1)
    return apart - 1 if count > 2 and apart and apart % 2 == 0 else apart

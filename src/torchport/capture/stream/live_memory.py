"""Follows the memory that a run allocates: what each op adds, and what lives when."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

from torchport.torch_private import FakeTensor, storage_key, storage_use_count, tensor_use_count


class LiveMemory:
    """The storages that were allocated since it was made, as long as they live.

    Works on fake tensors as on real ones: a fake tensor's storage has a size and a life, and no memory.

    Args:
        tensors: those that exist already, and are not counted.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.live = 0
        self._sizes: dict[int, int] = {}
        # A storage that was there before must not die while its number stands in `_sizes`.
        self._outside: list[torch.UntypedStorage] = []
        for tensor in tensors:
            self.know(tensor)

    def know(self, tensor: torch.Tensor) -> None:
        """Leave a tensor's storage uncounted, unless it was counted before."""
        storage = _storage(tensor)
        if storage is not None and storage_key(storage) not in self._sizes:
            self._sizes[storage_key(storage)] = 0
            self._outside.append(storage)

    def count(self, tensor: torch.Tensor) -> int:
        """Count a tensor's storage if it is new, until it dies; return how many bytes that added."""
        storage = _storage(tensor)
        if storage is None or storage_key(storage) in self._sizes:
            return 0
        size = int(storage.nbytes())
        self._sizes[storage_key(storage)] = size
        self.live += size
        weakref.finalize(storage, self._forget, storage_key(storage))
        return size

    def give_up(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage no longer, though it lives: on a real run it would be another's by now."""
        storage = _storage(tensor)
        if storage is not None:
            self.live -= self._sizes.get(storage_key(storage), 0)
            self._sizes[storage_key(storage)] = 0

    def _forget(self, number: int) -> None:
        self.live -= self._sizes.pop(number, 0)


def is_held_by_autograd_alone(tensor: torch.Tensor) -> bool:
    """Whether nobody but autograd's engine holds a gradient that it adds to: on a real run it adds in place.

    Under a dispatch mode it makes a new tensor instead. The counts are those of a fake tensor that an op is
    handed and that has no other owner.
    """
    if not isinstance(tensor, FakeTensor) or tensor_use_count(tensor) != 4:
        return False
    return int(storage_use_count(storage_key(tensor.untyped_storage()))) == 2


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return a tensor's storage; None for layouts that have none of their own."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None

"""Follows the memory that a run allocates: what each op adds, and what lives when."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import NamedTuple

import torch

from torchport.torch_private import storage_key


class Owned(NamedTuple):
    """A storage by its number, and how many bytes of it are counted."""

    number: int
    size: int


class LiveMemory:
    """The storages that were allocated since it was made, as long as they live.

    Works on fake tensors as on real ones: a fake tensor's storage has a size and a life, and no memory.

    Args:
        tensors: those that exist already, and are not counted.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.live = 0
        self._sizes: dict[int, int] = {}
        self._made_with: dict[int, weakref.ref[torch.Tensor]] = {}
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
        self._made_with[storage_key(storage)] = weakref.ref(tensor)
        self.live += size
        weakref.finalize(storage, self._forget, storage_key(storage))
        return size

    def owned(self, tensor: torch.Tensor) -> Owned | None:
        """Return the storage that was counted with a tensor; None for a view, which holds its base too."""
        storage = _storage(tensor)
        number = 0 if storage is None else storage_key(storage)
        made = self._made_with.get(number)
        return None if made is None or made() is not tensor else Owned(number, self._sizes[number])

    def lives(self, owned: Owned) -> bool:
        """Whether a storage that was counted lives."""
        return owned.number in self._sizes

    def _forget(self, number: int) -> None:
        self.live -= self._sizes.pop(number, 0)
        self._made_with.pop(number, None)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return a tensor's storage; None for layouts that have none of their own."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None

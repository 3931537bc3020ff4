"""Tracks the memory that a run allocates: what each op adds, and how much is live at any time."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import NamedTuple

import torch

from torchport.torch_private import storage_key


class Owned(NamedTuple):
    """A storage's number, and how many of its bytes are counted."""

    number: int
    size: int


class LiveMemory:
    """The live storages among those allocated since its creation.

    Works on fake tensors as on real ones: a fake tensor's storage has a size and a lifetime, but no memory.

    Args:
        tensors: existing tensors, which are not counted.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.live = 0
        self._sizes: dict[int, int] = {}
        self._made_with: dict[int, weakref.ref[torch.Tensor]] = {}
        # Keeps uncounted storages alive while their numbers are in `_sizes`, so these are not reused.
        self._outside: list[torch.UntypedStorage] = []
        for tensor in tensors:
            self.ignore(tensor)

    def ignore(self, tensor: torch.Tensor) -> None:
        """Exclude a tensor's storage from the count, unless it is already counted."""
        storage = _storage(tensor)
        if storage is not None and storage_key(storage) not in self._sizes:
            self._sizes[storage_key(storage)] = 0
            self._outside.append(storage)

    def count(self, tensor: torch.Tensor) -> int:
        """Count a tensor's storage for its lifetime, if it is new; return the number of bytes added."""
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
        """Return the storage that was counted for a tensor; None for a view, which keeps its base alive."""
        storage = _storage(tensor)
        number = 0 if storage is None else storage_key(storage)
        made = self._made_with.get(number)
        return None if made is None or made() is not tensor else Owned(number, self._sizes[number])

    def lives(self, owned: Owned) -> bool:
        """Whether a counted storage is still alive."""
        return owned.number in self._sizes

    def _forget(self, number: int) -> None:
        self.live -= self._sizes.pop(number, 0)
        self._made_with.pop(number, None)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return a tensor's storage; None for layouts without a storage."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None

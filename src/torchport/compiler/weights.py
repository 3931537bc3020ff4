"""Notices that a weight changed after its value became part of an island.

Three things are looked at, because each alone misses some change: what the modules hold
(`module.weight = other`, `module.head = other`, `module.train()`), a weight's version
counter and address (`weight.mul_(2)`, `weight.data = other`), and one word of its memory
(`weight.data.mul_(2)`, which has a version counter of its own).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TypeAlias

import torch

from torchport.capture import ModuleState
from torchport.compiler.normalise import Weight

Word: TypeAlias = "ctypes.c_uint8 | ctypes.c_uint16 | ctypes.c_uint32 | ctypes.c_uint64"


class Changed(Exception):
    """A weight changed after its value became part of an island."""


class WeightGuard:
    """Remembers the weights as they were when the islands were built.

    Args:
        weights: the weights; those that the program itself writes must not be among them.
        state: what the module holds that they belong to, if nobody else looks after it.
    """

    def __init__(self, weights: Iterable[Weight], state: ModuleState | None = None) -> None:
        kept = [weight for weight in weights if weight.tensor.numel()]
        self._tensors = [weight.tensor for weight in kept]
        self._storages = [tensor.untyped_storage() for tensor in self._tensors]
        self._state = state
        self._counted = [tensor for tensor in self._tensors if not tensor.is_inference()]
        self._words = [_word(tensor) for tensor in self._tensors if tensor.device.type == "cpu"]
        self._versions = [tensor._version for tensor in self._counted]
        self._addresses = [tensor.data_ptr() for tensor in self._tensors]
        self._values = [word.value for word in self._words]

    def check(self) -> None:
        """Raise `Changed` if a weight is not as it was."""
        if not self.unchanged():
            raise Changed

    def unchanged(self) -> bool:
        """Whether all weights are as they were."""
        return (
            [tensor._version for tensor in self._counted] == self._versions
            and list(map(torch.Tensor.data_ptr, self._tensors)) == self._addresses
            # After the addresses: memory that was freed must not be read.
            and [word.value for word in self._words] == self._values
            and (self._state is None or self._state.unchanged())
        )


def _word(tensor: torch.Tensor) -> Word:
    """Return a view of an element in the middle; the guard keeps the storage alive."""
    size = tensor.element_size()
    kinds: dict[int, type[Word]] = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32}
    kind = kinds.get(size, ctypes.c_uint64)
    middle = (
        tensor.reshape(-1)[tensor.numel() // 2] if tensor.is_contiguous() else tensor[(0,) * tensor.dim()]
    )
    return kind.from_address(middle.data_ptr())

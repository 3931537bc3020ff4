"""Notices that a weight changed after its value became part of an island.

Three things are looked at, because each alone misses some change: the tensor that the module holds
(`module.weight = other`), its version counter and address (`weight.mul_(2)`, `weight.data = other`),
and one word of its memory (`weight.data.mul_(2)`, which has a version counter of its own).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TypeAlias

import torch

from torchport.compiler.normalise import Weight

Word: TypeAlias = "ctypes.c_uint8 | ctypes.c_uint16 | ctypes.c_uint32"


class WeightGuard:
    """Remembers the weights as they were when the islands were built.

    Args:
        weights: the weights; those that the program itself writes must not be among them.
    """

    def __init__(self, weights: Iterable[Weight]) -> None:
        kept = [weight for weight in weights if weight.tensor.numel()]
        self._tensors = [weight.tensor for weight in kept]
        self._storages = [tensor.untyped_storage() for tensor in self._tensors]
        self._held = [
            (weight.owner, weight.key, weight.tensor) for weight in kept if weight.owner is not None
        ]
        self._counted = [tensor for tensor in self._tensors if not tensor.is_inference()]
        self._words = [_word(tensor) for tensor in self._tensors if tensor.device.type == "cpu"]
        self._versions = [tensor._version for tensor in self._counted]
        self._addresses = [tensor.data_ptr() for tensor in self._tensors]
        self._values = [word.value for word in self._words]

    def unchanged(self) -> bool:
        """Whether all weights are as they were."""
        return (
            [tensor._version for tensor in self._counted] == self._versions
            and [word.value for word in self._words] == self._values
            and [tensor.data_ptr() for tensor in self._tensors] == self._addresses
            and all(owner.get(key) is tensor for owner, key, tensor in self._held)
        )


def _word(tensor: torch.Tensor) -> Word:
    """Return a view of an element in the middle; the guard keeps the storage alive."""
    size = tensor.element_size()
    kinds: dict[int, type[Word]] = {1: ctypes.c_uint8, 2: ctypes.c_uint16}
    kind = kinds.get(size, ctypes.c_uint32)
    middle = (
        tensor.reshape(-1)[tensor.numel() // 2] if tensor.is_contiguous() else tensor[(0,) * tensor.dim()]
    )
    return kind.from_address(middle.data_ptr())

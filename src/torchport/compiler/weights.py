"""Notices that a weight changed after its value became part of an island.

Three things are looked at, because each alone misses some change: what the modules hold
(`module.weight = other`, `module.head = other`, `module.train()`), a weight's version
counter and address (`weight.mul_(2)`, `weight.data = other`), and one word of its memory
(`weight.data.mul_(2)`, which has a version counter of its own).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy
import torch

from torchport.capture import ModuleState
from torchport.compiler.normalise import Weight
from torchport.structure.memory_words import MemoryWords


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
        held = [tensor for tensor in self._tensors if tensor.device.type == "cpu"]
        self._words = MemoryWords([address for tensor in held for address in _middle(tensor)], 4)
        self._versions = [tensor._version for tensor in self._counted]
        self._addresses = [tensor.data_ptr() for tensor in self._tensors]
        self._values = self._words.read()

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
            and numpy.array_equal(self._words.read(), self._values)
            and (self._state is None or self._state.unchanged())
        )


def _middle(tensor: torch.Tensor) -> list[int]:
    """Return where an element in the middle lies, four bytes each; the guard keeps the storage alive."""
    flat = tensor.reshape(-1) if tensor.is_contiguous() else None
    element = tensor[(0,) * tensor.dim()] if flat is None else flat[flat.numel() // 2]
    return [element.data_ptr() + place for place in range(0, element.element_size(), 4)]

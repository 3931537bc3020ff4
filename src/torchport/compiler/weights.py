"""Notices that a weight changed after its value became part of an island.

Three things are looked at, because each alone misses some change: what the modules hold
(`module.weight = other`, `module.head = other`, `module.train()`), a weight's version
counter, address and shape (`weight.mul_(2)`, `weight.data = other`), and some words of its memory
(`weight.data.mul_(2)`, which has a version counter of its own).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from torchport.capture import ModuleState
from torchport.compiler.normalise import Weight
from torchport.structure.memory_words import MemoryWords
from torchport.structure.tensor_words import TensorWords, is_readable, layout

# How many elements of a small and of a large weight are looked at: one that is pruned through `.data` is
# noticed, and so are most writes to many rows.
_FEW, _MANY = 2, 8
_LARGE = 4096


class Changed(Exception):
    """A weight changed after its value became part of an island."""


class WeightGuard:
    """Remembers the weights as they were when the islands were built.

    Args:
        weights: the weights; those that the program itself writes must not be among them.
        state: what the module holds that they belong to, if nobody else looks after it.
    """

    def __init__(self, weights: Iterable[Weight], state: ModuleState | None = None) -> None:
        tensors = [weight.tensor for weight in weights if weight.tensor.numel()]
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self._state = state
        known = layout()
        quick = [tensor for tensor in tensors if known and is_readable(tensor)]
        self._quick = TensorWords(quick, known) if known else None
        self._asked = [tensor for tensor in tensors if not (known and is_readable(tensor))]
        self._answers = self._ask()
        held = [tensor for tensor in tensors if tensor.device.type == "cpu"]
        self._words = MemoryWords([address for tensor in held for address in _samples(tensor)], 4)
        self._values = self._words.read().tobytes()

    def check(self) -> None:
        """Raise `Changed` if a weight is not as it was."""
        if not self.unchanged():
            raise Changed

    def unchanged(self) -> bool:
        """Whether all weights are as they were."""
        return (
            (self._quick is None or self._quick.unchanged())
            and (not self._asked or self._ask() == self._answers)
            # After the addresses: memory that was freed must not be read.
            and self._words.read().tobytes() == self._values
            and (self._state is None or self._state.unchanged())
        )

    def _ask(self) -> list[object]:
        return [
            (
                None if tensor.is_inference() else tensor._version,
                tensor.data_ptr(),
                tensor.shape,
                tensor.stride() if tensor.layout is torch.strided else None,
            )
            for tensor in self._asked
        ]


def _samples(tensor: torch.Tensor) -> Iterator[int]:
    """Yield where some elements lie, spread over all of them, four bytes each.

    The guard keeps the storage alive.
    """
    count = min(_MANY if tensor.numel() >= _LARGE else _FEW, tensor.numel())
    for number in range(count):
        place = (2 * number + 1) * tensor.numel() // (2 * count)
        address = tensor.data_ptr()
        for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
            place, index = divmod(place, size)
            address += index * stride * tensor.element_size()
        yield from range(address, address + tensor.element_size(), 4)

"""Detects which results of a model share memory with tensors that it wrote to, or with one another.

A functional graph does not show this: where the model writes to a buffer and returns it, the graph returns
the written value. During a capture, tensors are fake, but have storages just as real ones do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from torchport.torch_private import storage_key


@dataclass(frozen=True, slots=True)
class SharedResult:
    """A result that is a view of another tensor's memory.

    Args:
        result: the index of the result.
        base: the viewed tensor: the index of an input or of another result, or the name of a weight.
        kind: the kind of base: `input`, `result` or `weight`.
        size, stride: the view's size and stride.
        offset: where the view begins, in elements from the beginning of the base.
    """

    result: int
    base: int | str
    kind: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class WatchedMemory:
    """The memory that a model may write to, recorded before the model is called.

    Args:
        leaves: the tensors of the model's inputs.
        module: the module that holds the weights.
    """

    def __init__(self, leaves: Sequence[torch.Tensor], module: nn.Module) -> None:
        weights = {
            **dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False)),
        }
        held: list[tuple[str, int | str, torch.Tensor]] = [
            ("input", index, leaf) for index, leaf in enumerate(leaves)
        ]
        held += [("weight", name, tensor) for name, tensor in weights.items()]
        self._bases = [(kind, base, tensor, _version(tensor)) for kind, base, tensor in held]

    def shared(self, results: Sequence[torch.Tensor]) -> tuple[SharedResult, ...]:
        """Return the results that share memory in ways that a functional graph does not show."""
        owned = {_storage(tensor) for _, _, tensor, _ in self._bases}
        written = {
            _storage(tensor): (kind, base, tensor)
            for kind, base, tensor, version in reversed(self._bases)
            if _version(tensor) != version
        }
        found = []
        for index, result in enumerate(results):
            key = _storage(result)
            if key in written:
                found.append(_view(index, result, *written[key]))
            elif key is not None and key not in owned:
                cover = _cover(index, results)
                if cover is not None:
                    found.append(_view(index, result, "result", cover, results[cover]))
        return tuple(shared for shared in found if shared is not None)

    def shared_by_size(self, results: Sequence[torch.Tensor]) -> tuple[tuple[int, int | None], ...]:
        """Return the results that share memory and have dynamic sizes, so that `shared` cannot describe how.

        Each is paired with the other result, or with None if the model writes to the shared memory.
        """
        owned = {_storage(tensor) for _, _, tensor, _ in self._bases}
        written = {_storage(tensor) for _, _, tensor, version in self._bases if _version(tensor) != version}
        open_ones = {index for index, result in enumerate(results) if _place(result) is None}
        found: list[tuple[int, int | None]] = []
        for index, result in enumerate(results):
            key = _storage(result)
            if key in written and index in open_ones:
                found.append((index, None))
            elif key is not None and key not in owned:
                others = [other for other in range(index) if _storage(results[other]) == key]
                found += [(index, other) for other in others if {index, other} & open_ones]
        return tuple(found)


def _storage(tensor: torch.Tensor) -> int | None:
    return storage_key(tensor.untyped_storage()) if tensor.layout is torch.strided else None


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _place(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Return size, stride and offset; None if one is dynamic, and so must not be compared."""
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    if not all(isinstance(number, int) for number in numbers):
        return None
    return tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())


def _view(
    index: int, result: torch.Tensor, kind: str, base: int | str, owner: torch.Tensor
) -> SharedResult | None:
    shown, whole = _place(result), _place(owner)
    if shown is None or whole is None or result.dtype != owner.dtype or shown[2] < whole[2]:
        return None
    return SharedResult(index, base, kind, shown[0], shown[1], shown[2] - whole[2])


def _cover(index: int, results: Sequence[torch.Tensor]) -> int | None:
    """Return the index of another result, a contiguous one whose memory contains this one's, if any."""
    result = results[index]
    shown = _place(result)
    if shown is None:
        return None
    for other, cover in enumerate(results):
        if other == index or _storage(cover) != _storage(result):
            continue
        whole = _place(cover)
        if whole is None or not cover.is_contiguous():
            continue
        # Of two results with the same memory, the first is the base.
        same = result.is_contiguous() and result.numel() == cover.numel() and other > index
        if whole[2] <= shown[2] and _end(*shown) <= whole[2] + cover.numel() and not same:
            return other
    return None


def _end(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> int:
    """Return the position after a tensor's last element in its storage."""
    if 0 in size:
        return offset
    return offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True)) + 1

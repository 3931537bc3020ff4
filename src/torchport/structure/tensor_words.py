"""Tells that tensors were not touched without asking each of them.

A guard looks at hundreds of weights on each call: whether they are the same tensors, with the same memory in
the same shape, and whether torch counted a write to them. Asked one by one, each answer waits for memory that
is not in the processor's caches. So the words in which torch itself keeps the answers are read, all at once.
Where they are is tried out before; where that is not found, the tensors are asked.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import _disable_current_modes

from torchport.structure.memory_words import MemoryWords

_WORD = 8
_MOST_DIMS = 5  # torch keeps the sizes of up to as many in the tensor itself
_SEARCHED = 160  # bytes of a tensor, less than it has


@dataclass(frozen=True, slots=True)
class Layout:
    """Where torch keeps what it knows of a tensor, in bytes from the start of each object.

    Args:
        tensor: in the Python object, the address of the tensor.
        storage, version, sizes: in the tensor: its storage's address, its version counter's address, and
            its sizes, strides and offset.
        counted: in the version counter, the version.
        memory: in the storage, the address of its memory.
    """

    tensor: int
    storage: int
    version: int
    sizes: int
    counted: int
    memory: int


class TensorWords:
    """All that torch knows of tensors but their values, as it is when this is made.

    It keeps the Python objects alive, and with them all that it reads.

    Args:
        tensors: each `is_readable`.
        layout: where torch keeps it.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], layout: Layout) -> None:
        self._tensors = list(tensors)
        kept = [word for tensor in tensors for word in _kept_in(tensor, layout)]
        behind = [word for tensor in tensors for word in _kept_behind(tensor, layout)]
        # In this order: what the first ones show must still be there when the next ones are read.
        words = [
            MemoryWords([id(tensor) + layout.tensor for tensor in tensors], 8),
            MemoryWords(kept, 8),
            MemoryWords(behind, 4),
        ]
        self._words = [(part.read, part.read().tobytes()) for part in words]

    def unchanged(self) -> bool:
        """Whether all is as it was."""
        return all(read().tobytes() == before for read, before in self._words)


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor's words are where `layout` says; others must be asked."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.dim() <= _MOST_DIMS
    )


def _kept_in(tensor: torch.Tensor, layout: Layout) -> Iterator[int]:
    """Yield the addresses of the words that a tensor itself holds."""
    start = tensor._cdata
    yield start + layout.storage
    yield start + layout.version
    sizes = start + layout.sizes
    yield sizes - _WORD  # the number of dimensions
    for dim in range(tensor.dim()):
        yield sizes + _WORD * dim
        yield sizes + _WORD * (_MOST_DIMS + dim)
    yield sizes + _WORD * 2 * _MOST_DIMS  # the offset


def _kept_behind(tensor: torch.Tensor, layout: Layout) -> Iterator[int]:
    """Yield the addresses of the halves of words that its version counter and its storage hold."""
    counter = _read(tensor._cdata + layout.version)
    if counter:  # a tensor made under inference_mode has none
        yield counter + layout.counted
    memory = tensor.untyped_storage()._cdata + layout.memory
    yield memory
    yield memory + 4


@functools.cache
def layout() -> Layout | None:
    """Return where this torch keeps what it knows of a tensor, if that is found and proves true."""
    try:
        # Whoever asks may trace, or run under inference_mode: what is tried out is not part of that.
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.inference_mode(False):
            found = _find_layout()
            return found if all(_notices(change, found) for change in _CHANGES) else None
    except LookupError:
        return None


def _find_layout() -> Layout:
    tensor, other = _distinct(), torch.zeros(3)
    same_counter = tensor.detach()
    storage = tensor.untyped_storage()
    storage_at = _find(tensor._cdata, storage._cdata)
    # What a tensor shares with its detached self, and with no other tensor, besides the storage.
    [version_at] = [
        place
        for place in range(0, _SEARCHED, _WORD)
        if place != storage_at
        and _read(tensor._cdata + place) == _read(same_counter._cdata + place) != 0
        and _is_heap(_read(tensor._cdata + place), near=storage._cdata)
        and _is_heap(_read(other._cdata + place), near=storage._cdata)
        and _read(tensor._cdata + place) != _read(other._cdata + place)
    ] or [-1]
    if version_at < 0:
        raise LookupError
    counter = _read(tensor._cdata + version_at)
    counted = [place for place in range(8, 24, 4) if _read_half(counter + place) == tensor._version]
    wanted = [tensor.dim(), *tensor.shape, *tensor.stride(), tensor.storage_offset()]
    sizes = [
        place + _WORD
        for place in range(0, _SEARCHED - _WORD * len(wanted) + _WORD, _WORD)
        if [_read(tensor._cdata + place + _WORD * i) for i in range(len(wanted))] == wanted
    ]
    if len(counted) != 1 or len(sizes) != 1:
        raise LookupError
    return Layout(
        tensor=_find(id(tensor), tensor._cdata, size=32),
        storage=storage_at,
        version=version_at,
        sizes=sizes[0],
        counted=counted[0],
        memory=_find(storage._cdata, storage.data_ptr(), size=32),
    )


def _distinct() -> torch.Tensor:
    """Return a tensor all of whose words differ from one another."""
    tensor = torch.zeros(40_000).as_strided((2, 3, 4, 7, 5), (9001, 1709, 307, 37, 6), 13)
    for _ in range(71):
        tensor.zero_()
    return tensor


def _find(start: int, word: int, size: int = _SEARCHED) -> int:
    for place in range(0, size, _WORD):
        if _read(start + place) == word:
            return place
    raise LookupError


def _is_heap(word: int, near: int) -> bool:
    """Whether a word may be the address of a small object: aligned, and not far from another one."""
    return word % 8 == 0 and abs(word - near) < 1 << 36


def _read(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _read_half(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value


def _notices(change: Callable[[torch.Tensor], object], found: Layout) -> bool:
    """Whether a change is seen on tensors of each kind, and nothing is seen without one."""
    for make in (lambda: torch.ones(4, 4), lambda: torch.nn.Parameter(torch.ones(4, 4))):
        tensor, bystander = make(), make()
        both, one = TensorWords([bystander, tensor], found), TensorWords([bystander], found)
        tensor.sum().item(), tensor.t(), tensor.detach(), tensor[1:]
        if not both.unchanged():
            return False
        with torch.no_grad():
            kept = change(tensor)
        if both.unchanged() or not one.unchanged():
            return False
        del kept
    return True


def _swap(tensor: torch.Tensor) -> torch.Tensor:
    other = torch.ones(4, 4)
    other = torch.nn.Parameter(other) if isinstance(tensor, torch.nn.Parameter) else other
    torch.utils.swap_tensors(tensor, other)
    return other


def _replace(value: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], None]:
    def change(tensor: torch.Tensor) -> None:
        tensor.data = value(tensor)

    return change


_CHANGES: tuple[Callable[[torch.Tensor], object], ...] = (
    lambda tensor: tensor.add_(1),
    lambda tensor: tensor[0].zero_(),
    lambda tensor: tensor.copy_(torch.zeros(4, 4)),
    lambda tensor: tensor.untyped_storage().resize_(1 << 20),
    lambda tensor: tensor.detach().resize_(1 << 10),
    lambda tensor: tensor.set_(torch.ones(4, 4)),  # type: ignore[call-overload]  # any tensor will do
    _replace(lambda tensor: torch.ones(4, 4)),
    _replace(lambda tensor: tensor.data.t()),
    _replace(lambda tensor: tensor.data[:2]),
    _swap,
)

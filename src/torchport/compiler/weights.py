"""Notices that a weight changed after its value became part of an island.

Three things are looked at, because each alone misses some change: what the modules hold
(`module.weight = other`, `module.head = other`, `module.train()`), a weight's address, shape, strides and
version counter (`weight.data = other`, `weight.mul_(2)`), and some elements of its memory
(`weight.data.mul_(2)`, which has a version counter of its own).

All of it is asked through torch's public interface, one tensor after another, while the device computes. In a
loop during which nobody's code runs, once is enough (`look_once`).
"""

from __future__ import annotations

import contextlib
import operator
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence

import torch

from torchport.capture import ModuleState
from torchport.compiler.normalise import NormalGraph, Weight
from torchport.compiler.weight_samples import sample_memory, samples_now

# What a sparse tensor consists of, by its layout.
_SPARSE_PARTS = {
    torch.sparse_coo: ("indices", "values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_version = operator.attrgetter("_version")


class Changed(Exception):
    """A weight changed after its value became part of an island."""


class _Loop(threading.local):
    """Which guards were asked in the loop that a thread is in; None outside of such loops."""

    asked: list[WeightGuard] | None = None


_loop = _Loop()


@contextlib.contextmanager
def look_once() -> Iterator[None]:
    """Let each guard look at everything on its first call, and on others only at what torch counts.

    For loops during which no code runs that is not known. What another thread writes in place is still
    noticed at once; what it puts in a weight's place, after the loop.
    """
    before, _loop.asked = _loop.asked, []
    try:
        yield
    finally:
        _loop.asked = before


class WeightGuard:
    """Remembers the weights as they were when the islands were built.

    Args:
        weights: the weights; those that the program itself writes must not be among them.
        state: what the module holds that they belong to, if nobody else looks after it.
        followed: those that it does not keep alive, by id: whoever asks has them. Their memory is kept.
    """

    def __init__(
        self, weights: Iterable[Weight], state: ModuleState | None = None, *, followed: Collection[int] = ()
    ) -> None:
        asked = [weight.tensor for weight in weights if weight.tensor.numel()]
        self._held = [each for each in asked if id(each) not in followed]
        self._followed = [weakref.ref(each) for each in asked if id(each) in followed]
        asked = self._asked()
        self._are_plain = all(map(_is_plain, asked))
        self._state = state
        tensors = self._tensors(asked)
        # While they are kept, no other tensor gets their memory, and with it their address.
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self._places = list(map(torch.Tensor.data_ptr, tensors))
        self._shapes = list(map(torch.Tensor.size, tensors))
        self._strides = list(map(torch.Tensor.stride, tensors))
        self._are_counted = not any(map(torch.Tensor.is_inference, [*asked, *tensors]))
        self._versions = self._count(asked, tensors)
        self._samples = sample_memory(tensors)
        self._values = samples_now(self._samples)

    def check(self) -> None:
        """Raise `Changed` if a weight is not as it was."""
        asked = _loop.asked
        if asked is None:
            is_changed = not self.unchanged()
        elif any(guard is self for guard in asked):
            is_changed = not self._is_counted_the_same()
        else:
            is_changed = not self.unchanged()
            asked.append(self)
        if is_changed:
            raise Changed

    def _is_counted_the_same(self) -> bool:
        weights = self._asked()
        try:
            return self._count(weights, self._tensors(weights)) == self._versions
        except RuntimeError:  # as in `unchanged`
            return False

    def unchanged(self) -> bool:
        """Whether all weights are as they were."""
        try:
            asked = self._asked()
            tensors = self._tensors(asked)
            return (
                list(map(torch.Tensor.data_ptr, tensors)) == self._places
                and list(map(torch.Tensor.size, tensors)) == self._shapes
                and list(map(torch.Tensor.stride, tensors)) == self._strides
                and self._count(asked, tensors) == self._versions
                # After the addresses: memory that was freed must not be read.
                and self._samples == self._values
                and (self._state is None or self._state.unchanged())
            )
        except RuntimeError:  # a tensor of another kind took a weight's place: it has no address or version
            return False

    def _asked(self) -> list[torch.Tensor]:
        """Return the weights; one that is freed is not among them, so that something changed."""
        if not self._followed:
            return self._held
        return [*self._held, *(weight for follow in self._followed if (weight := follow()) is not None)]

    def _tensors(self, weights: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the tensors that have memory of their own."""
        if self._are_plain:
            return weights
        return [part for weight in weights for part in _parts(weight)]

    def _count(self, weights: list[torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[int | None]:
        """Return how often torch saw them written."""
        asked = tensors if self._are_plain else [*weights, *tensors]
        if self._are_counted:
            return list(map(_version, asked))
        # torch does not count for a tensor that was made under inference_mode.
        return [None if tensor.is_inference() else tensor._version for tensor in asked]


def frozen_weights(graph: NormalGraph) -> list[Weight]:
    """Return the weights that a graph reads and does not write; to be asked before any of it is folded."""
    read = {node.target for node in graph.graph_module.graph.nodes if node.op == "get_attr"}
    written = {node.target for node in graph.writes if node.op == "get_attr"}
    return [weight for name, weight in graph.weights.items() if name in read - written]


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not hasattr(tensor, "__tensor_flatten__")


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors that hold a tensor's memory: itself, or those that it consists of."""
    if hasattr(tensor, "__tensor_flatten__"):  # a subclass that wraps other tensors
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            yield from _parts(getattr(tensor, name))
    elif tensor.layout is torch.strided:
        yield tensor
    elif tensor.layout is not torch.sparse_coo or tensor.is_coalesced():  # torch shows no other's parts
        yield from [getattr(tensor, name)() for name in _SPARSE_PARTS.get(tensor.layout, ())]

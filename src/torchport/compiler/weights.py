"""Guards against changes to weights whose values were built into an island.

Three things are checked, because each alone misses some changes: what the modules hold
(`module.weight = other`, `module.head = other`, `module.train()`), a weight's address, shape, strides and
version counter (`weight.data = other`, `weight.mul_(2)`), and some elements of its memory
(`weight.data.mul_(2)`, which has a version counter of its own).

All checks run while the device computes. In a loop that runs no user code, one full check is enough
(`check_once`).
"""

from __future__ import annotations

import contextlib
import operator
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

import torch

from torchport.capture import ModuleState
from torchport.compiler.normalise import NormalGraph, Weight
from torchport.compiler.shape_guard import ShapeGuard
from torchport.compiler.weight_samples import sample_memory, samples_now
from torchport.runtime.eager_fallback import NotCompiled

# How many times a call rebuilds while another thread keeps changing the weights.
_MOST_BUILDS = 3

_Program = TypeVar("_Program")
_Result = TypeVar("_Result")

# The parts of a sparse tensor, by layout.
_SPARSE_PARTS = {
    torch.sparse_coo: ("indices", "values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_version = operator.attrgetter("_version")


class Changed(Exception):
    """A weight changed after its value was built into an island."""


def run_with_current_weights(
    program: _Program, run: Callable[[_Program], _Result], rebuild: Callable[[_Program], _Program]
) -> _Result:
    """Return the result of running a program, which is rebuilt each time that its weights turn out changed.

    Args:
        program: the program to run first.
        run: runs a program; raises `Changed` before it computes anything if a weight changed.
        rebuild: returns a program with the current weights.

    Raises:
        NotCompiled: another thread changed the weights during each of several builds.
    """
    for _ in range(_MOST_BUILDS):
        try:
            return run(program)
        except Changed:
            program = rebuild(program)
    try:
        return run(program)
    except Changed:
        raise NotCompiled("its weights change during the call") from None


class _Loop(threading.local):
    """The guards that were checked in the current thread's loop; None outside of `check_once`."""

    checked: list[WeightGuard] | None = None


_loop = _Loop()


@contextlib.contextmanager
def check_once() -> Iterator[None]:
    """Make each guard check everything on its first call, and only version counters on later ones.

    For loops that run no user code. In-place writes by another thread are still detected at once; writes
    through `.data`, and replaced weights, only after the loop.
    """
    before, _loop.checked = _loop.checked, []
    try:
        yield
    finally:
        _loop.checked = before


class WeightGuard:
    """Checks whether the weights are still as they were when the islands were built.

    Args:
        weights: the weights, without those that the program itself writes.
        state: the attributes of the module that they belong to, unless the caller tracks them.
        followed: the ids of weights that are not kept alive, since the caller holds them. Their memory is.
    """

    def __init__(
        self, weights: Iterable[Weight], state: ModuleState | None = None, *, followed: Collection[int] = ()
    ) -> None:
        checked = [weight.tensor for weight in weights if weight.tensor.numel()]
        self._held = [each for each in checked if id(each) not in followed]
        self._followed = [weakref.ref(each) for each in checked if id(each) in followed]
        checked = self._live_weights()
        self._are_plain = all(map(_is_plain, checked))
        self._state = state
        tensors = self._tensors(checked)
        # While the storages are alive, no other tensor can be allocated at the same address.
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self._places = list(map(torch.Tensor.data_ptr, tensors))
        self._shapes = ShapeGuard(tensors)
        self._have_versions = not any(map(torch.Tensor.is_inference, [*checked, *tensors]))
        self._versions = self._versions_of(checked, tensors)
        self._samples = sample_memory(tensors)
        self._values = samples_now(self._samples)

    def check(self) -> None:
        """Raise `Changed` if a weight changed."""
        checked = _loop.checked
        if checked is None:
            is_changed = not self.unchanged()
        elif any(guard is self for guard in checked):
            is_changed = not self._versions_unchanged()
        else:
            is_changed = not self.unchanged()
            checked.append(self)
        if is_changed:
            raise Changed

    def _versions_unchanged(self) -> bool:
        weights = self._live_weights()
        try:
            return self._versions_of(weights, self._tensors(weights)) == self._versions
        except RuntimeError:  # as in `unchanged`
            return False

    def unchanged(self) -> bool:
        """Whether all weights are unchanged."""
        try:
            weights = self._live_weights()
            tensors = self._tensors(weights)
            return (
                list(map(torch.Tensor.data_ptr, tensors)) == self._places
                and self._shapes.unchanged(tensors)
                and self._versions_of(weights, tensors) == self._versions
                # After the addresses: freed memory must not be read.
                and self._samples == self._values
                and (self._state is None or self._state.unchanged())
            )
        except RuntimeError:  # a weight was replaced by a kind of tensor that has no address or version
            return False

    def _live_weights(self) -> list[torch.Tensor]:
        """Return the weights without those that were freed, whose absence counts as a change."""
        if not self._followed:
            return self._held
        return [*self._held, *(weight for follow in self._followed if (weight := follow()) is not None)]

    def _tensors(self, weights: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the tensors that hold the weights' memory."""
        if self._are_plain:
            return weights
        return [part for weight in weights for part in _parts(weight)]

    def _versions_of(self, weights: list[torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[int | None]:
        """Return the version counters of the weights and of their parts."""
        checked = tensors if self._are_plain else [*weights, *tensors]
        if self._have_versions:
            return list(map(_version, checked))
        # Tensors made under inference_mode have no version counter.
        return [None if tensor.is_inference() else tensor._version for tensor in checked]


def frozen_weights(graph: NormalGraph) -> list[Weight]:
    """Return the weights that a graph reads and does not write; call it before constants are folded."""
    read = {node.target for node in graph.graph_module.graph.nodes if node.op == "get_attr"}
    written = {node.target for node in graph.writes if node.op == "get_attr"}
    return [weight for name, weight in graph.weights.items() if name in read - written]


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not hasattr(tensor, "__tensor_flatten__")


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors that hold a tensor's memory: itself, or its parts."""
    if hasattr(tensor, "__tensor_flatten__"):  # a subclass that wraps other tensors
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            yield from _parts(getattr(tensor, name))
    elif tensor.layout is torch.strided:
        yield tensor
    elif tensor.layout is not torch.sparse_coo or tensor.is_coalesced():  # else torch hides the parts
        yield from [getattr(tensor, name)() for name in _SPARSE_PARTS.get(tensor.layout, ())]

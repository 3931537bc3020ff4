"""Puts other tensors in a module's place for a while, and leaves the module as it was.

A model is run on fake tensors, which have no values, or on copies of its own. Either way what it writes to
its buffers, what it caches in its attributes and the gradients that it gets are gone afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from torchport.capture.stream.op_call import is_dense

TensorMap = Callable[[torch.Tensor], torch.Tensor]

_CONTAINERS = (list, dict, set)


@contextmanager
def standing_in(module: nn.Module, substitute: Once) -> Iterator[None]:
    """Replace every tensor that a module and those in it hold; put all of them back afterwards.

    Args:
        module: the model.
        substitute: gives the tensor to use in place of one.
    """
    kept = [_Kept(part) for part in module.modules()]
    try:
        for part in kept:
            part.replace(substitute)
        yield
    finally:
        for part in kept:
            part.restore()


@contextmanager
def kept_as_it_was(module: nn.Module) -> Iterator[None]:
    """Put back what a module and those in it held, if their code changes it meanwhile, as a cache does."""
    kept = [_Kept(part) for part in module.modules()]
    try:
        yield
    finally:
        for part in kept:
            part.restore()


class Once:
    """A map of tensors that gives the same result for the same tensor, so that tied weights stay tied."""

    def __init__(self, substitute: TensorMap) -> None:
        self._substitute = substitute
        self._known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what stands for a tensor."""
        if id(tensor) not in self._known:
            self._known[id(tensor)] = (tensor, self._substitute(tensor))
        return self._known[id(tensor)][1]

    def results(self) -> list[torch.Tensor]:
        """Return everything that stands for something."""
        return [result for _, result in self._known.values()]


class _Kept:
    """What one module held: its attributes, and what its own lists and dicts contained."""

    def __init__(self, part: nn.Module) -> None:
        self._attributes = vars(part)
        self._before = dict(self._attributes)
        self._contents = [
            (held, list(held) if isinstance(held, (list, set)) else dict(held))
            for held in self._before.values()
            if isinstance(held, _CONTAINERS)
        ]
        self._replaced: list[tuple[dict[str, torch.Tensor | None], str, torch.Tensor]] = []

    def replace(self, substitute: TensorMap) -> None:
        """Put substitutes in the place of the module's tensors."""
        for name, held in self._before.items():
            if name in ("_parameters", "_buffers"):
                tensors = cast("dict[str, torch.Tensor | None]", held)
                for key, tensor in list(tensors.items()):
                    if tensor is not None:
                        self._replaced.append((tensors, key, tensor))
                        tensors[key] = substitute(tensor)
            elif name != "_modules":
                self._attributes[name] = _replaced(held, substitute)

    def restore(self) -> None:
        """Put everything back."""
        for tensors, key, tensor in self._replaced:  # a scripted module's are no dicts, and are not below
            tensors[key] = tensor
        for name in [name for name in self._attributes if name not in self._before]:
            del self._attributes[name]
        self._attributes.update(self._before)
        for held, content in self._contents:
            if isinstance(held, list):
                held[:] = content
            elif isinstance(held, set):
                held.clear()
                held.update(content)
            elif isinstance(held, dict):
                held.clear()
                held.update(cast("dict[object, object]", content))


def _replaced(value: object, substitute: TensorMap) -> object:
    """Return a value with substitutes for its tensors; itself where it holds none."""
    if isinstance(value, torch.Tensor):
        return substitute(value)
    if type(value) in (list, tuple):
        items = [_replaced(item, substitute) for item in cast("list[object]", value)]
        changed = any(new is not old for new, old in zip(items, cast("list[object]", value), strict=True))
        return (tuple(items) if isinstance(value, tuple) else items) if changed else value
    if type(value) is dict:
        entries = {key: _replaced(item, substitute) for key, item in value.items()}
        return entries if any(entries[key] is not value[key] for key in entries) else value
    return value


def faker(mode: FakeTensorMode) -> TensorMap:
    """Return what makes fake tensors; those of the meta device become ones of the CPU."""

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if type(tensor) not in (torch.Tensor, nn.Parameter) or not is_dense(tensor):
            return _like(mode.from_tensor(tensor.detach(), static_shapes=True), tensor)
        # What `from_tensor` does for any tensor, without what it does for others than plain ones.
        bare = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        device = torch.device("cpu") if tensor.is_meta else tensor.device
        return _like(FakeTensor(mode, bare, device), tensor)

    return fake


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor, without its gradient."""
    return _like(tensor.detach().clone(), tensor)


def _like(made: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as a parameter where another is one, and with a gradient where it has one."""
    made.requires_grad_(tensor.requires_grad)
    if isinstance(tensor, nn.Parameter):
        made._is_param = True  # as torch marks parameters of other classes
    return made

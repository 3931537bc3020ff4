"""Tensors to use in place of a model's own: fake ones, which have no values, or copies."""

from __future__ import annotations

import torch
from torch import nn

from torchport.capture.tensor_specs import is_dense
from torchport.capture.untouched.stand_in import TensorMap
from torchport.torch_private import FakeTensor, FakeTensorMode, mark_as_parameter


class Once:
    """A map of tensors that gives the same result for the same tensor, be it a weight or an input."""

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
        mark_as_parameter(made)
    return made

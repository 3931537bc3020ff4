"""Substitutes for a model's own tensors: fake tensors, which have no values, or copies."""

from __future__ import annotations

import torch
from torch import nn

from torchport.capture.tensor_specs import is_dense
from torchport.capture.untouched.stand_in import TensorMap
from torchport.torch_private import FakeTensor, FakeTensorMode, mark_as_parameter


class Once:
    """A memoized tensor map: the same tensor, be it a weight or an input, always gives the same result."""

    def __init__(self, substitute: TensorMap) -> None:
        self._substitute = substitute
        self._known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the substitute for a tensor."""
        if id(tensor) not in self._known:
            self._known[id(tensor)] = (tensor, self._substitute(tensor))
        return self._known[id(tensor)][1]

    def results(self) -> list[torch.Tensor]:
        """Return all substitutes made so far."""
        return [result for _, result in self._known.values()]


def faker(mode: FakeTensorMode) -> TensorMap:
    """Return a function that makes tensors fake; those on the meta device become fake CPU tensors."""

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if type(tensor) not in (torch.Tensor, nn.Parameter) or not is_dense(tensor):
            return _like(mode.from_tensor(tensor.detach(), static_shapes=True), tensor)
        # The same as `from_tensor`, without its handling of special tensors.
        bare = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        device = torch.device("cpu") if tensor.is_meta else tensor.device
        return _like(FakeTensor(mode, bare, device), tensor)

    return fake


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor, without its gradient."""
    return _like(tensor.detach().clone(), tensor)


def _like(made: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Give `made` the `requires_grad` of `tensor`, and make it a parameter if that is one; return it."""
    made.requires_grad_(tensor.requires_grad)
    if isinstance(tensor, nn.Parameter):
        mark_as_parameter(made)
    return made

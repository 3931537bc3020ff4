"""Detects forward-mode differentiation (`torch.autograd.forward_ad`), whose tangents tensors carry along."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.autograd.forward_ad import unpack_dual

from torchport.targets.target import OutOfRange
from torchport.torch_private import dual_level


def refuse_tangents(tensors: Iterable[torch.Tensor]) -> None:
    """Refuse tensors with tangents: a device would silently drop them.

    Raises:
        OutOfRange: a tensor has a tangent; eager torch computes the result's tangent.
    """
    if dual_level() >= 0 and any(unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise OutOfRange("an input carries a tangent of forward-mode differentiation")

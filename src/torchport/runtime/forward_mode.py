"""Forward-mode differentiation (`torch.autograd.forward_ad`): a tensor carries its tangent along, unseen."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.autograd.forward_ad import unpack_dual

from torchport.targets.target import OutOfRange
from torchport.torch_private import dual_level


def refuse_tangents(tensors: Iterable[torch.Tensor]) -> None:
    """Refuse tensors with tangents: a device computes none, so that the result's would be lost.

    Raises:
        OutOfRange: one has a tangent; eager torch computes the result's.
    """
    if dual_level() >= 0 and any(unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise OutOfRange("an input carries a tangent of forward-mode differentiation")

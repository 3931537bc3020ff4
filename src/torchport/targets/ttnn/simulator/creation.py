"""Simulated functions that make tensors."""

from __future__ import annotations

import torch

from torchport.targets.ttnn.simulator.movement import LAYOUTS
from torchport.targets.ttnn.simulator.registry import kernel
from torchport.targets.ttnn.simulator.tensors import HELD_IN, Held, hold
from torchport.targets.ttnn.ttnn_program import Dtype


@kernel("full")
def full(shape: tuple[int, ...], value: float, *, dtype: Dtype, layout: str, device: object) -> Held:
    """A tensor of one value."""
    where = device if isinstance(device, torch.device) else torch.device("cpu")
    return hold(torch.full(shape, value, dtype=HELD_IN[dtype], device=where), dtype, LAYOUTS[layout])

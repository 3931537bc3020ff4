"""Exposes a tensor's memory to NumPy and other libraries."""

from __future__ import annotations

from typing import Any

import numpy
import torch


def as_array(tensor: torch.Tensor) -> numpy.ndarray[Any, Any]:
    """Return an array that shares a CPU tensor's memory.

    Through DLPack: after `Tensor.numpy`, torch permanently refuses to resize the tensor, which may be the
    user's.
    """
    return numpy.from_dlpack(tensor.detach())

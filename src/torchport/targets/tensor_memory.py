"""A tensor's memory as NumPy and other libraries read it."""

from __future__ import annotations

from typing import Any

import numpy
import torch


def as_array(tensor: torch.Tensor) -> numpy.ndarray[Any, Any]:
    """Return an array on a CPU tensor's memory.

    By DLPack: after `Tensor.numpy` torch refuses for good to resize the tensor, which may be the user's.
    """
    return numpy.from_dlpack(tensor.detach())

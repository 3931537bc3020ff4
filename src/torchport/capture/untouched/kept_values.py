"""Gives tensors their values back after a run that is the model's own, such as one that is timed.

A capture needs none of this: it runs a stand-in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from torchport.capture.replaced_buffers import held_buffers


@contextmanager
def values_kept(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Put tensors back as they were; those that nobody writes to are not written."""
    kept = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, content in kept:
                # A write would tell the compiled model to look anew.
                if tensor.shape != content.shape or not (tensor.is_meta or torch.equal(tensor, content)):
                    tensor.resize_(content.shape).copy_(content)


@contextmanager
def buffers_kept(module: nn.Module) -> Iterator[None]:
    """Put every buffer of a module back, and each that was replaced."""
    held = held_buffers(module)
    try:
        with values_kept(buffer.tensor for buffer in held if buffer.tensor is not None):
            yield
    finally:
        for buffer in held:
            if buffer.holder.get(buffer.name) is not buffer.tensor:
                buffer.holder[buffer.name] = buffer.tensor

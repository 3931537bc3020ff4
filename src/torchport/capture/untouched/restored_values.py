"""Restores the values of tensors after a run of the model itself, such as a timed one.

A capture does not need this: it runs a stand-in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from torchport.capture.replaced_buffers import held_buffers


@contextmanager
def values_kept(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Restore the values of tensors on exit; tensors that did not change are not written to."""
    kept = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, content in kept:
                # A needless write would make the compiled model check its weights again.
                if tensor.shape != content.shape or not (tensor.is_meta or torch.equal(tensor, content)):
                    tensor.resize_(content.shape).copy_(content)


@contextmanager
def buffers_kept(module: nn.Module) -> Iterator[None]:
    """Restore the values of a module's buffers on exit, and reinstall buffers that were replaced."""
    held = held_buffers(module)
    try:
        with values_kept(buffer.tensor for buffer in held if buffer.tensor is not None):
            yield
    finally:
        for buffer in held:
            if buffer.holder.get(buffer.name) is not buffer.tensor:
                buffer.holder[buffer.name] = buffer.tensor

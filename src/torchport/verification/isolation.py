"""Keeps a run from leaving anything behind: tensors are copied, buffers put back."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from torchport.structure import flatten


def copy_tensors(value: object) -> object:
    """Return the value with copies of its tensors; those that share memory share it in the copy too."""
    flat = flatten(value)
    copies = copy.deepcopy([tensor.detach() for tensor in flat.leaves])
    for tensor, made in zip(flat.leaves, copies, strict=True):
        if tensor.requires_grad:
            made.requires_grad_()
    return flat.structure.rebuild(copies)


@contextmanager
def buffers_kept(module: nn.Module) -> Iterator[None]:
    """Put every buffer that changes back as it was."""
    kept = [
        (owner, name, buffer, buffer.detach().clone())
        for owner in module.modules()
        for name, buffer in owner._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for owner, name, buffer, content in kept:
            if owner._buffers.get(name) is not buffer:
                owner._buffers[name] = buffer
            # Unchanged buffers are not written: a write would tell the compiled model to look anew.
            if not torch.equal(buffer, content):
                with torch.no_grad():
                    buffer.resize_(content.shape).copy_(content)

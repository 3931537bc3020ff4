"""Copies the tensors of a value, since a call may modify its inputs in place, or return its buffers."""

from __future__ import annotations

import copy

from torchport.structure import flatten


def copy_tensors(value: object) -> object:
    """Return the value with copies of its tensors; tensors that share memory still do in the copy."""
    flat = flatten(value)
    copies = copy.deepcopy([tensor.detach() for tensor in flat.leaves])
    for tensor, made in zip(flat.leaves, copies, strict=True):
        if tensor.requires_grad:
            made.requires_grad_()
    return flat.structure.rebuild(copies)

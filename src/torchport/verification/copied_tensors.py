"""Copies the tensors of a value: a call may write into its inputs, and return its buffers."""

from __future__ import annotations

import copy

from torchport.structure import flatten


def copy_tensors(value: object) -> object:
    """Return the value with copies of its tensors; those that share memory share it in the copy too."""
    flat = flatten(value)
    copies = copy.deepcopy([tensor.detach() for tensor in flat.leaves])
    for tensor, made in zip(flat.leaves, copies, strict=True):
        if tensor.requires_grad:
            made.requires_grad_()
    return flat.structure.rebuild(copies)

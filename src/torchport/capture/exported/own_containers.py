"""Gives modules their own lists and dicts back: `torch.export` leaves copies of them in their place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def own_containers(module: nn.Module) -> Iterator[None]:
    """Let a module and those in it hold the same lists and dicts afterwards as before.

    One that was changed meanwhile stays replaced by torch's copy, which is as it was before.
    """
    before = [(vars(part), dict(vars(part))) for part in module.modules()]
    try:
        yield
    finally:
        for attributes, earlier in before:
            for name, own in earlier.items():
                copy = attributes.get(name)
                if copy is not own and _same(own, copy):
                    attributes[name] = own


def _same(own: object, copy: object) -> bool:
    """Whether two containers hold the same objects."""
    if own is copy:
        return True
    if type(own) is not type(copy):
        return False
    if isinstance(own, (list, tuple)) and isinstance(copy, (list, tuple)):
        return len(own) == len(copy) and all(map(_same, own, copy))
    if isinstance(own, dict) and isinstance(copy, dict):
        return own.keys() == copy.keys() and all(_same(own[key], copy[key]) for key in own)
    return False

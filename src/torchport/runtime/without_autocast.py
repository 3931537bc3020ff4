"""Switches autocast off: what it casts is among the ops of a captured graph, and must not be cast again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_KINDS = ("cpu", "cuda")


def is_casting() -> bool:
    """Whether autocast is on for any kind of device."""
    return any(map(torch.is_autocast_enabled, _KINDS))


@contextmanager
def without_autocast() -> Iterator[None]:
    """Switch it off for a while, where it is on: a part of a model may have been captured without it."""
    with ExitStack() as stack:
        for kind in filter(torch.is_autocast_enabled, _KINDS):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield

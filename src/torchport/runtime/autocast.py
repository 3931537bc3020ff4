"""Disables autocast while a captured graph runs: the graph already contains the casts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_KINDS = ("cpu", "cuda")


def is_casting() -> bool:
    """Whether autocast is enabled for any device type."""
    return any(map(torch.is_autocast_enabled, _KINDS))


@contextmanager
def without_autocast() -> Iterator[None]:
    """Disable autocast where it is enabled: part of a model may have been captured without it."""
    with ExitStack() as stack:
        for kind in filter(torch.is_autocast_enabled, _KINDS):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield

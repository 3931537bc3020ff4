"""Finds the buffers that a model replaces, `self.count = self.count + 1`: a graph can show a write alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, slots=True, eq=False)
class HeldBuffer:
    """A buffer with the place where a module holds it."""

    path: str
    holder: dict[str, torch.Tensor | None]
    name: str
    tensor: torch.Tensor | None


def held_buffers(module: nn.Module) -> list[HeldBuffer]:
    """Return the buffers of a module and of those in it."""
    return [
        HeldBuffer(f"{path}.{name}" if path else name, part._buffers, name, tensor)
        for path, part in module.named_modules()
        for name, tensor in part._buffers.items()
    ]


def replaced(before: Sequence[HeldBuffer]) -> Iterator[tuple[HeldBuffer, torch.Tensor, torch.Tensor]]:
    """Yield each buffer that the model put another in the place of: where, the old one, the new one.

    Args:
        before: the buffers as they were before the call.

    Raises:
        ValueError: what was put there is of another shape or dtype.
    """
    for held in before:
        new, old = held.holder.get(held.name), held.tensor
        if new is old:
            continue
        if new is None or old is None or new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError(f"the model replaces its buffer {held.path!r} by one of another shape or dtype")
        yield held, old, new


def write_replaced(before: Sequence[HeldBuffer]) -> None:
    """Write into each buffer what the model put in its place, and put the buffer back.

    Raises:
        ValueError: as `replaced` does.
    """
    # Copies: a new one may be another buffer, which is written as well.
    writes = [(held, old, new.clone()) for held, old, new in replaced(before)]
    for held, old, new in writes:
        old.copy_(new)
        held.holder[held.name] = old

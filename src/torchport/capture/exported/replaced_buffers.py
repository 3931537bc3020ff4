"""Turns the replacement of a buffer, `self.count = self.count + 1`, into a write, which a graph can show."""

from __future__ import annotations

from collections.abc import Iterator
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


def held_buffers(module: nn.Module) -> Iterator[HeldBuffer]:
    """Yield the buffers of a module and of those in it."""
    for path, part in module.named_modules():
        for name, tensor in part._buffers.items():
            yield HeldBuffer(f"{path}.{name}" if path else name, part._buffers, name, tensor)


def write_replaced(before: list[HeldBuffer]) -> None:
    """Write into each buffer what the model put in its place, and put the buffer back.

    Args:
        before: the buffers as they were before the call.

    Raises:
        ValueError: what was put there is of another shape or dtype.
    """
    replaced = []
    for held in before:
        new = held.holder.get(held.name)
        if new is held.tensor:
            continue
        old = held.tensor
        if new is None or old is None or new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError(f"the model replaces its buffer {held.path!r} by one of another shape or dtype")
        # A copy: it may be another buffer, which is written as well.
        replaced.append((held, old, new.clone()))
    for held, old, new in replaced:
        old.copy_(new)
        held.holder[held.name] = old

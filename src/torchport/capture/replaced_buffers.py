"""Finds buffers that a model reassigns (`self.count = self.count + 1`): a graph can only show writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, slots=True, eq=False)
class HeldBuffer:
    """A buffer, with the dict and name under which a module holds it."""

    path: str
    holder: dict[str, torch.Tensor | None]
    name: str
    tensor: torch.Tensor | None


def held_buffers(module: nn.Module) -> list[HeldBuffer]:
    """Return the buffers of a module and its submodules."""
    return [
        HeldBuffer(f"{path}.{name}" if path else name, part._buffers, name, tensor)
        for path, part in module.named_modules()
        for name, tensor in part._buffers.items()
    ]


def replaced(before: Sequence[HeldBuffer]) -> Iterator[tuple[HeldBuffer, torch.Tensor, torch.Tensor]]:
    """Yield each buffer that the model reassigned: its place, the old tensor, the new tensor.

    Args:
        before: the buffers before the call.

    Raises:
        ValueError: the new tensor has a different shape or dtype.
    """
    for held in before:
        new, old = held.holder.get(held.name), held.tensor
        if new is old:
            continue
        if new is None or old is None or new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError(
                f"the model replaces its buffer {held.path!r} with one of another shape or dtype"
            )
        yield held, old, new


def write_replaced(before: Sequence[HeldBuffer]) -> None:
    """Turn reassignments into writes: copy each new value into the original buffer, and reinstall that.

    Raises:
        ValueError: as `replaced` does.
    """
    # Clone first: a new value may itself be a buffer that gets overwritten, as in a swap.
    writes = [(held, old, new.clone()) for held, old, new in replaced(before)]
    for held, old, new in writes:
        old.copy_(new)
        held.holder[held.name] = old

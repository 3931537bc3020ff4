"""The tensors in the plain containers of a graph's values: lists, tuples and dictionaries."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def tensors_within(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, traversing plain containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_within(item)
    elif isinstance(value, dict):
        yield from tensors_within(list(value.values()))

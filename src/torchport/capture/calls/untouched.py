"""Leaves a model as it was before a run: attributes, buffers, weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn


@contextlib.contextmanager
def untouched(model: nn.Module, *, values: bool) -> Iterator[None]:
    """Give a module and those in it their attributes back afterwards, and the containers in them.

    Args:
        model: the module.
        values: whether weights may be written to meanwhile, and get their values back too.
    """
    attributes = [(vars(part), _copied(vars(part))) for part in model.modules()]
    tensors = [*model.parameters(), *model.buffers()] if values else []
    kept = [(tensor, tensor._version, tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    finally:
        for current, (shallow, containers) in attributes:
            current.clear()
            current.update(shallow)
            for container, content in containers:
                _refill(container, content)
        with torch.no_grad():
            for tensor, version, value in kept:
                if tensor._version != version:
                    tensor.copy_(value)


def _copied(
    attributes: dict[str, object],
) -> tuple[dict[str, object], list[tuple[object, object]]]:
    containers: list[tuple[object, object]] = []
    for name, value in attributes.items():
        # Hooks come and go by their handles.
        if isinstance(value, (list, dict, set)) and "hooks" not in name:
            containers.append((value, value.copy()))
    return dict(attributes), containers


def _refill(container: object, content: object) -> None:
    if isinstance(container, list) and isinstance(content, list):
        container[:] = content
    elif (isinstance(container, dict) and isinstance(content, dict)) or (
        isinstance(container, set) and isinstance(content, set)
    ):
        container.clear()
        container.update(content)

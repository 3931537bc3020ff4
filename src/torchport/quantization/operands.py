"""The tensors that a node reads, by their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def operands(node: fx.Node) -> list[fx.Node]:
    """Return the tensors among a node's arguments, those in lists too, in their order."""
    found: list[fx.Node] = []

    def note(place: int, value: fx.Node) -> fx.Node:
        found.append(value)
        return value

    map_operands(node, note)
    return found


def map_operands(
    node: fx.Node, replace: Callable[[int, fx.Node], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a node's arguments with something else in place of each tensor.

    Args:
        node: the node.
        replace: gives it, from the tensor's place among the operands and its node.
    """
    place = -1

    def other(value: Any) -> Any:
        nonlocal place
        if isinstance(value, fx.Node) and not is_number(value):
            place += 1
            return replace(place, value)
        if isinstance(value, (list, tuple)):
            return [other(item) for item in value]
        return value

    return tuple(other(value) for value in node.args), {
        key: other(value) for key, value in node.kwargs.items()
    }


def is_number(node: fx.Node) -> bool:
    """Whether a node gives a size, or another number."""
    return isinstance(node.meta.get("val"), _NUMBERS)

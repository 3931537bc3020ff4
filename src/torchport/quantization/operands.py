"""Finds and replaces the tensor operands of a node, by their index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def operands(node: fx.Node) -> list[fx.Node]:
    """Return the tensors among a node's arguments, including those in lists, in order."""
    found: list[fx.Node] = []

    def note(place: int, value: fx.Node) -> fx.Node:
        found.append(value)
        return value

    map_operands(node, note)
    return found


def map_operands(
    node: fx.Node, replace: Callable[[int, fx.Node], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a node's arguments with each tensor replaced.

    Args:
        node: the node.
        replace: returns the replacement, given the tensor's index among the operands and its node.
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
    """Whether a node's value is a size or another scalar."""
    return isinstance(node.meta.get("val"), _NUMBERS)

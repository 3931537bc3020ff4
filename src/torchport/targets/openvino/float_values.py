"""What is known about an op's float operands: the ranges of nodes and numbers, and weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import fx

from torchport.targets.integer_bounds import bounds_of
from torchport.targets.openvino.float_ranges import (
    ANYTHING,
    FINITE,
    Range,
    range_of_numbers,
    range_of_tensor,
    union,
)

T = TypeVar("T")


class Values:
    """What is known at the point where an op runs.

    Args:
        graph_module: the island; its weights are `get_attr` nodes.
        ranges: the ranges of the float nodes that ran before.
        remembered: a cache of what was computed from weights, shared between the many walks over an island.
    """

    def __init__(
        self,
        graph_module: fx.GraphModule,
        ranges: Mapping[fx.Node, Range],
        remembered: dict[object, object] | None = None,
    ) -> None:
        self.ranges = ranges
        self._graph_module = graph_module
        self._remembered = {} if remembered is None else remembered

    def of(self, value: object) -> Range:
        """Return the range of a node or a number."""
        if isinstance(value, fx.Node):
            if value in self.ranges:
                return self.ranges[value]
            if is_float(value):
                return self._of_weight(value) if value.op == "get_attr" else ANYTHING
            return range_of_numbers(*map(float, bounds_of(value)))
        if isinstance(value, (int, float)):
            return range_of_numbers(float(value))
        return FINITE if value is None else ANYTHING

    def of_sources(self, node: fx.Node) -> Range:
        """Return the range of all floats that an op reads."""
        return union([self.of(source) for source in node.all_input_nodes if is_float(source)] or [ANYTHING])

    def constant(self, value: object) -> torch.Tensor | None:
        """Return the tensor of a node that is a weight; None for any other value."""
        if isinstance(value, fx.Node) and value.op == "get_attr":
            return self._tensor(value).detach()
        return None

    def seen_with(self, ranges: Mapping[fx.Node, Range]) -> Values:
        """Return a copy with other ranges."""
        return Values(self._graph_module, ranges, self._remembered)

    def once(self, key: object, compute: Callable[[], T]) -> T:
        """Return the cached result for a key; compute it on the first call."""
        if key not in self._remembered:
            self._remembered[key] = compute()
        return self._remembered[key]  # type: ignore[return-value]  # what `compute` returned

    def _of_weight(self, node: fx.Node) -> Range:
        return self.once(("range", node), lambda: range_of_tensor(self._tensor(node)))

    def _tensor(self, node: fx.Node) -> torch.Tensor:
        tensor = getattr(self._graph_module, str(node.target))
        assert isinstance(tensor, torch.Tensor)
        return tensor


def is_float(node: fx.Node) -> bool:
    """Whether a node's result is a float tensor, or any of its several results is."""
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, torch.Tensor) and item.is_floating_point() for item in value)
    return isinstance(value, torch.Tensor) and value.is_floating_point()

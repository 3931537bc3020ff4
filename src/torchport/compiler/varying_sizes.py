"""Finds the symbolic sizes in one of Dynamo's graphs, which are also inputs of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import Dim

from torchport.compiler.open_sizes import NotOpen


@dataclass(frozen=True, slots=True)
class Varying:
    """The sizes of a graph's inputs that vary.

    Args:
        dynamic_shapes: for each tensor that is not a weight, which dimensions vary, as for `torch.export`.
        numbers: the inputs that are numbers, by index: of which of these tensors each is a size, and in which
            dimension.
    """

    dynamic_shapes: tuple[dict[int, object] | None, ...]
    numbers: Mapping[int, tuple[int, int]]


def find_varying(placeholders: Sequence[fx.Node], free: Sequence[int]) -> Varying | None:
    """Return the sizes that vary; None if there are none.

    Args:
        placeholders: the graph's inputs.
        free: the indices of the inputs that are not weights.

    Raises:
        NotOpen: sizes vary, and an input is neither a tensor nor a size of one.
    """
    values = {place: placeholders[place].meta.get("example_value") for place in free}
    tensors = [value for value in values.values() if isinstance(value, torch.Tensor)]
    shapes: list[dict[int, object] | None] = []
    places: dict[object, tuple[int, int]] = {}
    for leaf, tensor in enumerate(tensors):
        sizes: list[Any] = list(tensor.shape)
        varying = [dim for dim, size in enumerate(sizes) if isinstance(size, torch.SymInt)]
        shapes.append(dict.fromkeys(varying, Dim.AUTO) or None)
        for dim in varying:
            places.setdefault(sizes[dim].node.expr, (leaf, dim))
    numbers: dict[int, tuple[int, int]] = {}
    for place, value in values.items():
        if isinstance(value, torch.SymInt) and value.node.expr in places:
            numbers[place] = places[value.node.expr]
        elif places and not isinstance(value, torch.Tensor):
            name = placeholders[place].name
            raise NotOpen(f"its input {name}, such as a stride or a counter, is no size of a tensor")
    return Varying(tuple(shapes), numbers) if places else None

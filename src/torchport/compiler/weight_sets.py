"""What belongs to the weights that a graph is called with, for as long as they live.

Dynamo makes one graph of layers that are compiled one by one, and calls it with the weights of each.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

# Beyond this many sets of weights that live at a time, a graph runs with eager torch.
MOST_SETS = 256

Value = TypeVar("Value")


class WeightSets(Generic[Value]):
    """A value for each set of weights, dropped with the first of them that is freed.

    A value must not refer to its weights, or they are never freed.

    Args:
        make: makes the value of a new set.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._values: dict[tuple[int, ...], tuple[Value, list[object]]] = {}

    def find(self, weights: Sequence[object]) -> Value | None:
        """Return the value of these very weights, made when they first come; None if there are too many."""
        key = tuple(map(id, weights))
        found = self._values.get(key)
        if found is None:
            if len(self._values) >= MOST_SETS:
                return None
            # Of several threads that come here at the same time, one is the first.
            found = self._values.setdefault(
                key, (self._make(), [self._follow(each, key) for each in weights])
            )
        return found[0]

    def values(self) -> list[Value]:
        """Return the values that there are now."""
        return [value for value, _ in list(self._values.values())]

    def _follow(self, weight: object, key: tuple[int, ...]) -> object:
        """Return what drops a set when one of its weights is freed: another one may get its id."""
        if not isinstance(weight, torch.Tensor):
            return weight  # which is held: its id stays its own
        owner = weakref.ref(self)

        def drop(_: object) -> None:
            # Without a lock: it may run anywhere, and whoever holds that may build for minutes.
            sets = owner()
            if sets is not None:
                sets._values.pop(key, None)

        return weakref.ref(weight, drop)

"""Maps each set of weights that a graph is called with to a value, for as long as the weights live.

Dynamo makes one graph for layers that are compiled one by one, and calls it with the weights of each.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

# Beyond this many live sets of weights, a graph runs with eager torch.
MOST_SETS = 256

Value = TypeVar("Value")


class WeightSets(Generic[Value]):
    """A value for each set of weights, dropped when the first of its weights is freed.

    A value must not refer to its weights, or they are never freed.

    Args:
        make: makes the value for a new set.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._values: dict[tuple[int, ...], tuple[Value, list[object]]] = {}

    def find(self, weights: Sequence[object]) -> Value | None:
        """Return the value for exactly these weights, made on first use; None if there are too many sets."""
        key = tuple(map(id, weights))
        found = self._values.get(key)
        if found is None:
            if len(self._values) >= MOST_SETS:
                return None
            # `setdefault`: if several threads get here at the same time, one of them wins.
            found = self._values.setdefault(
                key, (self._make(), [self._follow(each, key) for each in weights])
            )
        return found[0]

    def values(self) -> list[Value]:
        """Return all current values."""
        return [value for value, _ in list(self._values.values())]

    def _follow(self, weight: object, key: tuple[int, ...]) -> object:
        """Return a weak reference that drops the set when the weight is freed, since its id may be reused."""
        if not isinstance(weight, torch.Tensor):
            return weight  # a strong reference, so that its id is not reused
        owner = weakref.ref(self)

        def drop(_: object) -> None:
            # Without a lock: this may run at any point, and the lock's holder may build for minutes.
            sets = owner()
            if sets is not None:
                sets._values.pop(key, None)

        return weakref.ref(weight, drop)

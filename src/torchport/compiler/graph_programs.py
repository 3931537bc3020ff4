"""What graphs of torch.compile's backend share: keys of their inputs, and how often eager torch ran them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from torchport.records import Coverage, Fallbacks
from torchport.runtime.eager_fallback import EagerFallback
from torchport.runtime.input_kind import LeafKey, key_of

# Beyond this many shapes of one graph, each call would pay for a compilation that is used once.
MOST_PROGRAMS = 8

GraphKey = tuple["LeafKey | tuple[type, object]", ...]

_recordings: list[list[Coverage]] = []
_watched: weakref.WeakSet[EagerFallback] = weakref.WeakSet()


def graph_key(args: Iterable[object]) -> GraphKey:
    """Return all of a graph's inputs that a program depends on, but the values of tensors."""
    return tuple([_key(item) for item in args])


def _key(value: object) -> LeafKey | tuple[type, object]:
    if isinstance(value, torch.Tensor):
        return key_of(value)
    if isinstance(value, float):
        return float, value.hex()  # which tells -0.0 from 0.0, and NaN is NaN
    return type(value), value if isinstance(value, int) else None


@contextmanager
def recording_coverage() -> Iterator[list[Coverage]]:
    """Give a list to which every graph that is built meanwhile adds what its target takes."""
    built: list[Coverage] = []
    _recordings.append(built)  # not of a thread: autograd builds backward graphs on one of its own
    try:
        yield built
    finally:
        _recordings[:] = [each for each in _recordings if each is not built]


def note_coverage(coverage: Coverage) -> None:
    """Add what a target takes of a graph to the lists that ask for it."""
    for built in list(_recordings):
        built.append(coverage)


def watched(what: str) -> EagerFallback:
    """Return the fallback of a new graph, which `fallbacks` counts for as long as the graph lives."""
    made = EagerFallback(what)
    _watched.add(made)
    return made


def fallbacks() -> Fallbacks:
    """Return how often eager torch ran graphs of `torch.compile(…, backend="torchport")` after all.

    All graphs that torch holds now are counted together, one call each time that one runs; a step of
    training runs a forward and a backward graph. The log has a warning for each graph and reason.

    Example:
        >>> torch.compile(torch.nn.ReLU(), backend="torchport", options={"target": "host"})(torch.ones(2))
        tensor([1., 1.])
        >>> counted = fallbacks()
        >>> counted.fallbacks <= counted.calls
        True
    """
    graphs = sorted(_watched, key=lambda graph: graph.last_time)
    records = [graph.record for graph in graphs]
    return Fallbacks(
        sum(record.calls for record in records),
        sum(record.fallbacks for record in records),
        records[-1].last_reason if records else "",
    )

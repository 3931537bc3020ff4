"""Shared by the backend's graphs: cache keys of inputs, and counts of fallbacks to eager torch."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from torchport.records import Coverage, Fallbacks
from torchport.runtime.eager_fallback import EagerFallback
from torchport.runtime.input_kind import LeafKey, key_of

# Beyond this many shapes of one graph, each compilation is likely to be used only once.
MOST_PROGRAMS = 8

GraphKey = tuple["LeafKey | tuple[type, object]", ...]

_recordings: list[list[Coverage]] = []
_watched: weakref.WeakSet[EagerFallback] = weakref.WeakSet()


def graph_key(args: Iterable[object]) -> GraphKey:
    """Return the cache key of a graph's inputs: all that a program depends on, without tensors' values."""
    return tuple([_key(item) for item in args])


def _key(value: object) -> LeafKey | tuple[type, object]:
    if isinstance(value, torch.Tensor):
        return key_of(value)
    if isinstance(value, float):
        return float, value.hex()  # tells -0.0 from 0.0, and NaN equals itself
    return type(value), value if isinstance(value, int) else None


@contextmanager
def recording_coverage() -> Iterator[list[Coverage]]:
    """Collect the coverage of all graphs that are built within the context."""
    built: list[Coverage] = []
    _recordings.append(built)  # not thread-local: autograd builds backward graphs on its own thread
    try:
        yield built
    finally:
        _recordings[:] = [each for each in _recordings if each is not built]


def note_coverage(coverage: Coverage) -> None:
    """Add a graph's coverage to all lists of `recording_coverage`."""
    for built in list(_recordings):
        built.append(coverage)


def watched(what: str) -> EagerFallback:
    """Return the fallback counter of a new graph, which `fallbacks` includes while the graph lives."""
    made = EagerFallback(what)
    _watched.add(made)
    return made


def fallbacks() -> Fallbacks:
    """Return how often graphs of `torch.compile(…, backend="torchport")` fell back to eager torch.

    All graphs that torch holds now are counted together, with one call for each run; a training step runs a
    forward and a backward graph. The log has a warning for each graph and reason.

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

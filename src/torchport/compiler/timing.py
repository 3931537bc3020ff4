"""Times two callables turn by turn, so that whatever else the machine does hits both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Clocked = Callable[[], float]  # makes one call and returns the seconds that it took

_FEWEST = 5
_MOST = 200


@dataclass(frozen=True, slots=True)
class Timing:
    """The medians of two callables' times, in seconds, and of how many runs of each they are."""

    first: float
    second: float
    runs: int


def time_interleaved(
    first: Clocked, second: Clocked, *, runs: int | None = None, warmup: int = 1, budget: float = 4.0
) -> Timing:
    """Time two callables in turn.

    Args:
        first, second: what to time.
        runs: how many runs of each; by default as many as the budget allows, at least five.
        warmup: how many runs of each go before, uncounted.
        budget: about how many seconds to spend if `runs` is not given.

    Example:
        >>> time_interleaved(lambda: 3.0, lambda: 1.0, runs=3)
        Timing(first=3.0, second=1.0, runs=3)
    """
    own, its = time_in_turns(first, second, runs=runs, warmup=warmup, budget=budget)
    return Timing(statistics.median(own), statistics.median(its), len(own))


def time_in_turns(
    first: Clocked, second: Clocked, *, runs: int | None = None, warmup: int = 1, budget: float = 4.0
) -> tuple[list[float], list[float]]:
    """Like `time_interleaved`, and return every run's time."""
    for _ in range(warmup):
        first()
        second()
    start = time.perf_counter()
    times: tuple[list[float], list[float]] = ([], [])
    while not _enough(len(times[0]), runs, time.perf_counter() - start, budget):
        # Who goes first alternates: the one after the other finds the caches as that left them.
        order = (0, 1) if len(times[0]) % 2 == 0 else (1, 0)
        for which in order:
            times[which].append((first, second)[which]())
    return times


def _enough(done: int, runs: int | None, elapsed: float, budget: float) -> bool:
    if runs is not None:
        return done >= runs
    return done >= _MOST or (done >= _FEWEST and elapsed >= budget)

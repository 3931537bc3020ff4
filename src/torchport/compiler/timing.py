"""Times two callables in turns, so that other load on the machine affects both alike."""

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
    """The medians of two callables' times, in seconds, and the number of runs of each."""

    first: float
    second: float
    runs: int


def time_interleaved(
    first: Clocked, second: Clocked, *, runs: int | None = None, warmup: int = 1, budget: float = 4.0
) -> Timing:
    """Time two callables in turns.

    Args:
        first, second: what to time.
        runs: how many runs of each; by default as many as the budget allows, at least five.
        warmup: how many uncounted runs of each to make first.
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
    """Like `time_interleaved`, but return every run's time."""
    for _ in range(warmup):
        first()
        second()
    start = time.perf_counter()
    times: tuple[list[float], list[float]] = ([], [])
    while not _enough(len(times[0]), runs, time.perf_counter() - start, budget):
        # The order alternates, because each run finds the CPU caches as the run before it left them.
        order = (0, 1) if len(times[0]) % 2 == 0 else (1, 0)
        for which in order:
            times[which].append((first, second)[which]())
    return times


def _enough(done: int, runs: int | None, elapsed: float, budget: float) -> bool:
    if runs is not None:
        return done >= runs
    return done >= _MOST or (done >= _FEWEST and elapsed >= budget)

"""Interleaved timing."""

import itertools

from torchport.compiler import timing
from torchport.compiler.timing import Timing, time_interleaved


def scripted(times, log=None, name=""):
    values = itertools.chain(times, itertools.repeat(1.0))

    def clock():
        if log is not None:
            log.append(name)
        return next(values)

    return clock


def test_the_medians_are_of_the_counted_runs():
    first = scripted([100.0, 3.0, 1.0, 2.0])  # the first is the warm-up
    second = scripted([100.0, 7.0, 9.0, 8.0])
    assert time_interleaved(first, second, runs=3, warmup=1) == Timing(2.0, 8.0, 3)


def test_runs_are_interleaved_and_take_turns_at_going_first():
    log = []
    time_interleaved(scripted([], log, "a"), scripted([], log, "b"), runs=4, warmup=0)
    assert "".join(log) == "abbaabba"


class Clock:
    """A clock that advances by a second with each reading."""

    def __init__(self):
        self.seconds = 0.0

    def perf_counter(self):
        self.seconds += 1.0
        return self.seconds


def test_the_budget_ends_it(monkeypatch):
    monkeypatch.setattr(timing, "time", Clock())
    assert time_interleaved(lambda: 1.0, lambda: 1.0, budget=12.0).runs == 11


def test_five_runs_are_made_however_long_they_take(monkeypatch):
    monkeypatch.setattr(timing, "time", Clock())
    assert time_interleaved(lambda: 1.0, lambda: 1.0, budget=0.0).runs == 5


def test_quick_models_end_as_well():
    assert time_interleaved(lambda: 0.0, lambda: 0.0, budget=60.0).runs == 200

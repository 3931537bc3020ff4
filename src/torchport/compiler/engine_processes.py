"""Runs the processes in which engines are tried: they build at the same time, and are timed one by one.

Building is mostly the work of one core each, and takes most of the time. A process that is about to time
something waits for its turn, in which nothing else runs: times are as good as those of one process alone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchport.targets.child_process import ChildEnd, run_child

# Files in a trial's folder: it has something to time; nothing else runs.
_READY, _GO = "ready", "go"
LOG = "trial.log"
_INTERVAL = 0.02  # seconds between looks at such a file

_FIXED, _COPIES = 2 * 10**9, 6  # bytes that a trial is expected to take: some, and the weights several times


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a trial may take."""

    seconds: float
    memory: int


class Turn:
    """A trial's turn to time something, in its own process.

    Args:
        folder: the trial's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.waited = 0.0  # seconds

    def wait(self) -> None:
        """Say that there is something to time, and wait until nothing else runs; at once from then on."""
        began = time.perf_counter()
        (self._folder / _READY).touch()
        while not (self._folder / _GO).exists():
            time.sleep(_INTERVAL)
        self.waited += time.perf_counter() - began


def at_a_time(engines: int, limit: int, weights: int, free: int) -> tuple[int, int]:
    """Return how many engines may build at a time, and the bytes that each may hold.

    Args:
        engines: how many there are.
        limit: the bytes that the user allows each; 0 if that was not said.
        weights: the bytes of the model's weights.
        free: the bytes that are free.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    need = limit or _FIXED + _COPIES * weights
    # One more than there are cores: who reads a file or waits for a compiler leaves its core to another.
    number = 1 if cores == 1 else max(1, min(engines, cores + 1, free // need))
    return number, limit or max(free // (number + 1), min(need, free // 2))


def run_trials(
    folders: Sequence[Path], bounds: Bounds, timing: Callable[[int], None]
) -> Iterator[tuple[int, ChildEnd]]:
    """Run the trials of some folders, and yield how each ended, as it ends.

    Args:
        folders: a trial's each.
        bounds: what each may take, without its waiting.
        timing: is told which one's turn it is.
    """
    if len(folders) == 1:
        (folders[0] / _GO).touch()
        yield 0, _run(folders[0], bounds)
        return
    with _processes(folders, bounds) as processes:
        left = dict(enumerate(processes))
        while any(one.builds for one in left.values()):
            yield from _ended(left)
            time.sleep(_INTERVAL)
        yield from _ended(left)
        for index in list(left):
            if index not in left:
                continue  # it ended while another had its turn
            if not left[index].has_ended:
                timing(index)
                left[index].go_on()
            left[index].thread.join()
            yield from _ended(left)


def _run(folder: Path, bounds: Bounds, **more: object) -> ChildEnd:
    return run_child(
        "torchport.compiler.engine_trial",
        folder,
        folder / LOG,
        timeout=bounds.seconds,
        memory=bounds.memory,
        **more,  # type: ignore[arg-type]  # of `_Process`
    )


class _Process:
    """A trial's process, and the thread that watches it."""

    def __init__(self, folder: Path, bounds: Bounds) -> None:
        self._folder = folder
        self._bounds = bounds
        self._stop = threading.Event()
        self.end: ChildEnd | None = None
        self.problem: BaseException | None = None
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        try:
            self.end = _run(self._folder, self._bounds, waits=self._waits, stop=self._stop)
        except BaseException as error:  # noqa: BLE001  # it is raised in the caller's thread
            self.problem = error

    def _waits(self) -> bool:
        return (self._folder / _READY).exists() and not (self._folder / _GO).exists()

    @property
    def has_ended(self) -> bool:
        return not self.thread.is_alive()

    @property
    def builds(self) -> bool:
        return not self.has_ended and not (self._folder / _READY).exists()

    def go_on(self) -> None:
        (self._folder / _GO).touch()

    def stop(self) -> None:
        """End the process."""
        self._stop.set()
        self.thread.join()


@contextmanager
def _processes(folders: Sequence[Path], bounds: Bounds) -> Iterator[list[_Process]]:
    """Start the processes; none is left when that is over, whatever happens."""
    started: list[_Process] = []
    try:
        for folder in folders:
            started.append(_Process(folder, bounds))
        yield started
    finally:
        for one in started:
            one.stop()


def _ended(left: dict[int, _Process]) -> Iterator[tuple[int, ChildEnd]]:
    for index, one in list(left.items()):
        if one.has_ended:
            del left[index]
            if one.end is None:
                raise one.problem or RuntimeError("a trial's thread gave no result")
            yield index, one.end

"""Runs the processes that try engines: they build in parallel, and are timed one by one.

Building mostly uses one core per process, and takes most of the time. A process that is about to time
something waits for its turn, in which nothing else runs, so its times are those of a process on its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchport.targets.child_process import ChildEnd, run_child

# Files in a trial's folder: the trial is ready to time; nothing else runs now.
_READY, _GO = "ready", "go"
LOG = "trial.log"
_INTERVAL = 0.02  # seconds between checks for these files

_FIXED, _COPIES = 2 * 10**9, 6  # the expected memory of a trial: fixed bytes, and copies of the weights


@dataclass(frozen=True, slots=True)
class Bounds:
    """The time and memory limits of a trial."""

    seconds: float
    memory: int


class Turn:
    """A trial's turn to time something, used in the trial's process.

    Args:
        folder: the trial's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.waited = 0.0  # seconds

    def wait(self) -> None:
        """Signal that this trial is ready, and wait until nothing else runs; later calls return at once."""
        began = time.perf_counter()
        (self._folder / _READY).touch()
        while not (self._folder / _GO).exists():
            time.sleep(_INTERVAL)
        self.waited += time.perf_counter() - began


def at_a_time(engines: int, limit: int, weights: int, free: int) -> tuple[int, int]:
    """Return how many engines may build in parallel, and how many bytes each may hold.

    Args:
        engines: the number of engines.
        limit: the user's limit for each in bytes; 0 if there is none.
        weights: the size of the model's weights in bytes.
        free: the free memory in bytes.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    need = limit or _FIXED + _COPIES * weights
    # One more than there are cores: while one reads a file or waits for a compiler, another can use its core.
    number = 1 if cores == 1 else max(1, min(engines, cores + 1, free // need))
    return number, limit or max(free // (number + 1), min(need, free // 2))


def run_trials(
    folders: Sequence[Path], bounds: Bounds, timing: Callable[[int], None]
) -> Generator[tuple[int, ChildEnd]]:
    """Run the trials in some folders, and yield how each ended, as they end.

    Args:
        folders: the folder of each trial.
        bounds: the limits of each, not counting the time it waits.
        timing: is called with the index of the trial whose turn begins.
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
    """Start the processes, and end all of them on exit, whatever happens."""
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

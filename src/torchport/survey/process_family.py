"""A process and whatever it started: how much memory they hold, and their end, all of them.

psutil is imported when it is first needed: who lacks it is told so by the survey.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

MARK = "TORCHPORT_SURVEY_WORKER"
"""The variable by which the processes of a worker are known, should the worker itself be gone."""

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 10.0  # seconds in which the kernel ends what was killed, however many there are
_INTERVAL = 0.005


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends: daemons stay in the family."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int, spared: Collection[int] = ()) -> list[psutil.Process]:
    """Return the processes below another, those left out that are spared."""
    import psutil

    try:
        found = psutil.Process(root).children(recursive=True)
    except psutil.Error:
        return []
    return [process for process in found if process.pid not in spared]


def end_descendants(root: int, spared: Collection[int] = ()) -> None:
    """Kill all that is below a process, also what is started meanwhile, and wait for its end."""
    import psutil

    patience = time.monotonic() + _PATIENCE
    while time.monotonic() < patience:
        alive = False
        for process in descendants(root, spared):
            with contextlib.suppress(psutil.Error):
                alive = process.status() != psutil.STATUS_ZOMBIE or alive
                process.kill()
            with contextlib.suppress(ChildProcessError):  # the zombie of another
                os.waitpid(process.pid, os.WNOHANG)
        if not alive:
            return
        time.sleep(_INTERVAL)


def end_marked(mark: str) -> None:
    """Kill the processes that were started under a worker's mark, wherever they stand now."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                process.kill()


def memory_held(pid: int, family: Collection[psutil.Process] = ()) -> int:
    """Return the bytes that a process and its family hold; a page that several share counts once."""
    import psutil

    try:
        own: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0  # it has just ended
    return max(own, sum(map(_share, family))) if len(family) > 1 else own


def _share(process: psutil.Process) -> int:
    """Return a process's part of the memory that it holds: of a shared page its share."""
    import psutil

    with contextlib.suppress(psutil.Error):
        try:
            return int(process.memory_full_info().pss)
        except (psutil.AccessDenied, AttributeError, OSError):  # not ours, or no Linux
            return int(process.memory_info().rss)
    return 0

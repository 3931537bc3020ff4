"""Measures the memory of a process and its descendants, and kills them.

psutil is imported when it is first needed; the survey reports if it is missing.
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
"""The environment variable that identifies a worker's processes if the worker itself is gone."""

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 10.0  # seconds to wait for killed processes to end
_INTERVAL = 0.005


def adopt_orphans() -> None:
    """Make this process the subreaper of its descendants, so that orphans and daemons remain below it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int, spared: Collection[int] = ()) -> list[psutil.Process]:
    """Return the descendants of a process, except the spared ones."""
    import psutil

    try:
        found = psutil.Process(root).children(recursive=True)
    except psutil.Error:
        return []
    return [process for process in found if process.pid not in spared]


def end_descendants(root: int, spared: Collection[int] = ()) -> None:
    """Kill the descendants of a process, including those started meanwhile, and wait for them to end."""
    import psutil

    patience = time.monotonic() + _PATIENCE
    while time.monotonic() < patience:
        alive = False
        for process in descendants(root, spared):
            with contextlib.suppress(psutil.Error):
                alive = process.status() != psutil.STATUS_ZOMBIE or alive
                process.kill()
            with contextlib.suppress(ChildProcessError):  # the child of another process
                os.waitpid(process.pid, os.WNOHANG)
        if not alive:
            return
        time.sleep(_INTERVAL)


def end_marked(mark: str) -> None:
    """Kill all processes whose environment has a worker's mark, whatever their parent is now."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                process.kill()


def memory_held(pid: int, family: Collection[psutil.Process] = ()) -> int:
    """Return the bytes that a process and its descendants hold; shared pages count once."""
    import psutil

    try:
        own: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0  # it has just ended
    return max(own, sum(map(_share, family))) if len(family) > 1 else own


def _share(process: psutil.Process) -> int:
    """Return a process's proportional set size, which divides shared pages among their processes."""
    import psutil

    with contextlib.suppress(psutil.Error):
        try:
            return int(process.memory_full_info().pss)
        except (psutil.AccessDenied, AttributeError, OSError):  # another user's process, or not Linux
            return int(process.memory_info().rss)
    return 0

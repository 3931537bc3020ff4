"""Runs work that may crash, hang or exhaust memory in a child process, watches it, and reliably ends it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_INTERVAL = 0.05  # seconds between checks of a child's memory
_WHILE_WAITING = 0.5  # the same while it waits: checks take time, and another child may be timed meanwhile
_GRACE = 0.2  # seconds for a child's own children to remove their files


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a child process ended.

    Args:
        how: it exited itself, or was ended for taking too long or too much memory.
        code: its exit code, negative for a signal.
        peak: the most bytes that its process group was observed to hold; 0 if it was not observed.
    """

    how: Literal["exited", "timeout", "memory"]
    code: int
    peak: int = 0

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exited with code {self.code}"
        known = {each.value: each.name for each in signal.Signals}
        return f"was killed by {known.get(-self.code, -self.code)}"


def run_child(
    module: str,
    folder: Path,
    log: Path,
    *,
    timeout: float | None = None,
    memory: int | None = None,
    waits: Callable[[], bool] | None = None,
    stop: threading.Event | None = None,
) -> ChildEnd:
    """Run `python -m MODULE FOLDER` to completion; it ends at the latest when this process does.

    Args:
        module: the module that the child runs; it calls `end_with_caller` first.
        folder: its argument: the folder with its request, for its results.
        log: the file for its output.
        timeout: how many seconds it may take.
        memory: how many bytes its process group may hold; checked only on Linux.
        waits: returns whether it is waiting for its caller, which does not count towards the timeout.
        stop: ends it early, as if it had timed out.
    """
    with log.open("wb") as file:
        # A process group of its own, so that all its children end with it. EOF on its standard input tells it
        # that this process is gone.
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            if memory is None and waits is None and stop is None:
                return _wait(child, timeout)
            return _watch(child, timeout, memory, waits, stop)
        finally:
            end_child(child)
            if child.stdin is not None:
                child.stdin.close()


def _wait(child: subprocess.Popen[bytes], timeout: float | None) -> ChildEnd:
    try:
        return ChildEnd("exited", child.wait(timeout))
    except subprocess.TimeoutExpired:
        return ChildEnd("timeout", -signal.SIGTERM)


def _watch(
    child: subprocess.Popen[bytes],
    timeout: float | None,
    memory: int | None,
    waits: Callable[[], bool] | None,
    stop: threading.Event | None,
) -> ChildEnd:
    left = float("inf") if timeout is None else timeout
    peak = 0
    seen = time.monotonic()
    while True:
        waiting = waits is not None and waits()
        try:
            return ChildEnd("exited", child.wait(_WHILE_WAITING if waiting else _INTERVAL), peak)
        except subprocess.TimeoutExpired:
            held = 0 if waiting else memory_of_group(child.pid)
        peak = max(peak, held)
        if memory is not None and held > memory:
            return ChildEnd("memory", -signal.SIGTERM, peak)
        now = time.monotonic()
        left -= 0 if waiting else now - seen
        seen = now
        if left < 0 or (stop is not None and stop.is_set()):
            return ChildEnd("timeout", -signal.SIGTERM, peak)


def end_child(child: subprocess.Popen[bytes]) -> None:
    """End a process with its whole group; on Windows, which has no process groups, only the process."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the whole group has ended
            if child.poll() is None:  # SIGTERM first, on which a C++ compiler removes its files
                os.killpg(child.pid, signal.SIGTERM)
                time.sleep(_GRACE)
            os.killpg(child.pid, signal.SIGKILL)
    elif child.poll() is None:
        child.kill()
    child.wait()


def memory_of_group(group: int) -> int:
    """Return how many bytes the processes of a group hold; 0 if the system does not tell."""
    held = 0
    try:
        entries = [entry for entry in os.listdir("/proc") if entry.isdecimal()]
    except OSError:  # not Linux
        return 0
    for entry in entries:
        try:
            if os.getpgid(int(entry)) == group:
                held += resident_bytes(int(entry))
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
    return held


def resident_bytes(pid: int | None = None) -> int:
    """Return the resident memory of a process in bytes; by default, of this one.

    Raises:
        OSError: there is no such process, or the system does not tell.
    """
    text = Path(f"/proc/{pid or 'self'}/statm").read_text()
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def end_with_caller(folder: Path | None = None) -> None:
    """Make this child process end, with its process group, when its caller is gone, possibly killed.

    Args:
        folder: removed then, since the caller no longer can.
    """
    threading.Thread(target=_wait_for_caller, args=(folder,), daemon=True).start()


def _wait_for_caller(folder: Path | None) -> None:
    os.read(0, 1)  # nothing is ever written: it returns when the caller's end of the pipe is closed
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)

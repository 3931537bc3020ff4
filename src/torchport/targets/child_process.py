"""A process of its own for what may crash, hang or eat memory: started, watched, and ended for sure."""

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

_INTERVAL = 0.05  # seconds between looks at the memory that a child holds
_WHILE_WAITING = 0.5  # the same for one that waits: looking costs time, while another is timed perhaps
_GRACE = 0.2  # in which what a child started may remove its files


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a child process ended.

    Args:
        how: by itself, or since it took too long or too much memory.
        code: its exit code, below 0 for a signal.
        peak: the most bytes that it and what it started were seen to hold; 0 where nobody looked.
    """

    how: Literal["exited", "timeout", "memory"]
    code: int
    peak: int = 0

    def __str__(self) -> str:
        if self.code >= 0:
            return f"ended with the exit code {self.code}"
        known = {each.value: each.name for each in signal.Signals}
        return f"was ended by {known.get(-self.code, -self.code)}"


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
    """Run `python -m MODULE FOLDER` to its end, which comes at the latest with this process's own.

    Args:
        module: what the child runs; it calls `end_with_caller` first.
        folder: its argument: where it finds what to do, and leaves what it did.
        log: where its output goes.
        timeout: how many seconds it may take.
        memory: how many bytes it and what it starts may hold. Only Linux tells.
        waits: says whether it waits for its caller just now, which costs it no time.
        stop: ends it before, as if it had taken too long.
    """
    with log.open("wb") as file:
        # A group of its own, so that whatever it starts ends with it. By the end of its standard input it
        # notices that this process is gone.
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
    """End a process with all that it started; on Windows, which has no groups of processes, itself alone."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # all of it has ended
            if child.poll() is None:  # a C++ compiler removes its files then
                os.killpg(child.pid, signal.SIGTERM)
                time.sleep(_GRACE)
            os.killpg(child.pid, signal.SIGKILL)
    elif child.poll() is None:
        child.kill()
    child.wait()


def memory_of_group(group: int) -> int:
    """Return how many bytes the processes of a group hold; 0 where the system does not say."""
    held = 0
    try:
        entries = [entry for entry in os.listdir("/proc") if entry.isdecimal()]
    except OSError:  # no Linux
        return 0
    for entry in entries:
        try:
            if os.getpgid(int(entry)) == group:
                held += resident_bytes(int(entry))
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
    return held


def resident_bytes(pid: int | None = None) -> int:
    """Return how many bytes a process holds in memory; this one unless another is named.

    Raises:
        OSError: there is no such process, or the system does not say.
    """
    text = Path(f"/proc/{pid or 'self'}/statm").read_text()
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def end_with_caller(folder: Path | None = None) -> None:
    """Have this process, a child, end when its caller is gone, killed perhaps, with all that it started.

    Args:
        folder: is removed then, since the caller cannot any more.
    """
    threading.Thread(target=_wait_for_caller, args=(folder,), daemon=True).start()


def _wait_for_caller(folder: Path | None) -> None:
    os.read(0, 1)  # nobody writes there: it returns when the caller's end is closed
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)

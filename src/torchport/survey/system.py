"""What surveys need of the operating system: POSIX's file locks and processes. Windows has neither."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from torchport.errors import SurveyError
from torchport.records import has_locks

if TYPE_CHECKING:
    import resource

_PR_SET_PDEATHSIG = 1
_INTERVAL = 0.2  # seconds between looks at the parent


def need_posix() -> None:
    """Refuse to go on where surveys cannot run.

    Raises:
        SurveyError: the system has no file locks, or no processes as POSIX has them.
    """
    if not has_locks() or not hasattr(os, "wait4") or not hasattr(os, "killpg"):
        raise SurveyError(
            f"surveys need POSIX's file locks and processes, and {platform.system()} has none",
            remedy="run it on Linux or macOS, or on Windows in WSL; torchport.run_benches needs neither",
        )


def forks_safely() -> bool:
    """Whether a process that has imported torch may fork. Apple's libraries may fail in the child."""
    return hasattr(os, "fork") and sys.platform != "darwin"


def peak_memory(usage: resource.struct_rusage) -> int:
    """Return the most bytes that an ended process held. macOS notes bytes, others kilobytes."""
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def end_with_parent() -> None:
    """Have this process, the first of its session, end with all that it started when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:  # only Linux does that by itself
        threading.Thread(target=watch_parent, args=(os.getppid(),), daemon=True).start()


def watch_parent(parent: int) -> None:
    """Wait until the parent is another one, since the first has ended; then end this process's group."""
    while os.getppid() == parent:
        time.sleep(_INTERVAL)
    os.killpg(0, signal.SIGKILL)

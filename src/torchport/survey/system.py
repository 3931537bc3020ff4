"""What surveys need from the operating system: POSIX file locks and processes. Windows has neither."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from torchport.errors import SurveyError
from torchport.records import has_locks

if TYPE_CHECKING:
    import resource

_PR_SET_PDEATHSIG = 1
_VISIBLE_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_INTERVAL = 0.2  # seconds between checks of the parent


def need_posix() -> None:
    """Raise if surveys cannot run on this system.

    Raises:
        SurveyError: the system lacks POSIX file locks or processes.
    """
    if not has_locks() or not hasattr(os, "wait4") or not hasattr(os, "killpg"):
        raise SurveyError(
            f"surveys need POSIX file locks and processes, which {platform.system()} does not have",
            remedy="use Linux, macOS, or WSL on Windows; torchport.run_benches works without them",
        )


def forks_safely() -> bool:
    """Return whether a process that has imported torch may fork; Apple's libraries may fail in the child."""
    return hasattr(os, "fork") and sys.platform != "darwin"


def has_gpu() -> bool:
    """Return whether torch can use a GPU; a forked process asks, because asking initializes CUDA."""
    return torch.backends.cuda.is_built() and _holds_in_fork(torch.cuda.is_available)


def can_fork_after_backward() -> bool:
    """Return whether a process can run backward passes if the one that it was forked from has run one.

    It cannot with torch's builds for GPUs, even where there is none: after the first fake tensor, they start
    threads for backward passes.
    """
    return _holds_in_fork(lambda: _runs_backward() and _holds_in_fork(_runs_backward))


def _runs_backward() -> bool:
    torch.ones(1, requires_grad=True).sum().backward()
    return True


def _holds_in_fork(condition: Callable[[], bool]) -> bool:
    """Return whether a condition holds in a forked process; it does not if it raises there."""
    pid = os.fork()
    if pid == 0:
        holds = False
        try:
            holds = condition()
        finally:
            os._exit(0 if holds else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def hide_gpus() -> dict[str, str]:
    """Hide GPUs from torch in this process and its forks; return the variables of the environment before.

    Any capture initializes CUDA if there is a GPU, and then no forked process can use it.
    """
    before = dict(os.environ)
    # By default, torch asks CUDA itself how many GPUs there are.
    os.environ |= dict.fromkeys(_VISIBLE_GPUS, "") | {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    return before


def peak_memory(usage: resource.struct_rusage) -> int:
    """Return the peak memory of an ended process in bytes; macOS reports bytes, other systems kilobytes."""
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def end_with_parent() -> None:
    """Make this process, a session leader, and its descendants end when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:  # only Linux has a system call for it
        threading.Thread(target=watch_parent, args=(os.getppid(),), daemon=True).start()


def watch_parent(parent: int) -> None:
    """Wait until this process has another parent, because the original one ended; then kill its group."""
    while os.getppid() == parent:
        time.sleep(_INTERVAL)
    os.killpg(0, signal.SIGKILL)

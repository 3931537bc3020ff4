"""Memory use of this process, as reported by the system."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def peak_memory() -> int | None:
    """Return this process's peak resident memory in bytes; None where the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def held_memory() -> int | None:
    """Return this process's resident memory in bytes; None where the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):  # not Linux
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")

"""How much memory this process holds, as the system counts it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def peak_memory() -> int | None:
    """Return the most bytes that this process held so far; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def held_memory() -> int | None:
    """Return how many bytes this process holds now; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):  # not Linux
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")

"""The process's heap."""

from __future__ import annotations

import contextlib
import ctypes


def return_free_memory() -> None:
    """Return the heap's free memory to the system, which the C library otherwise keeps for later.

    Compiling allocates a lot in pieces that are too small to be returned by themselves.
    """
    with contextlib.suppress(OSError, AttributeError):  # only glibc can
        ctypes.CDLL(None).malloc_trim(0)

"""Moves the memory that an engine allocated into huge pages, since each call reads all of its weights.

A processor's TLB caches the addresses of a few hundred pages; the others need page-table walks. With pages of
2 MiB instead of 4 KiB, there are five hundred times fewer. Engines allocate through the C library, which does
not request huge pages unless the process was started that way. Linux can move existing memory into huge pages
transparently, while it is in use.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy

from torchport.targets.heap import return_free_memory

# In bytes. Below that, page-table walks cost less than going through all mappings.
WORTHWHILE = 1 << 25

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_PROCESS = Path("/proc/self")
_MADV_COLLAPSE = 25
# The minimum fraction of a huge page that must be resident: moving it allocates the rest, too.
_LEAST_USED = 0.98
_LARGEST_PAGE = 1 << 25

# Start and end address.
Range = tuple[int, int]


class TakenMemory:
    """The memory that the process allocates after this object is created."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before = _mappings() if huge_page_size() else []
        self._resident = _resident()

    def settle(self) -> int:
        """Move memory allocated since the last call into huge pages; return how many bytes were moved.

        What is free is returned to the system first. Memory that other threads allocated meanwhile is moved
        along, which does no harm.
        """
        if not self._lock.acquire(blocking=False):  # another thread is doing it
            return 0
        try:
            if _resident() - self._resident < WORTHWHILE:
                return 0
            return_free_memory()
            size = huge_page_size()
            if not size:
                self._resident = _resident()
                return 0
            taken = _aligned(_without(_mappings(), self._before), size)
            moved = sum(_move(*place, size) for each in taken for place in _used(*each, size))
            self._before, self._resident = _mappings(), _resident()
            return moved
        finally:
            self._lock.release()


@functools.cache
def huge_page_size() -> int:
    """Return the size of a huge page in bytes; 0 if the system does not support or permit them."""
    try:
        if not sys.platform.startswith("linux") or "[never]" in (_SETTINGS / "enabled").read_text():
            return 0
        size = int((_SETTINGS / "hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0
    return size if 0 < size <= _LARGEST_PAGE else 0


def _resident() -> int:
    """Return the resident anonymous memory in bytes."""
    try:
        rows = (_PROCESS / "status").read_text().splitlines()
        return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith("RssAnon:"))
    except (OSError, ValueError, IndexError):
        return 0


def _mappings() -> list[Range]:
    """Return the address ranges of writable anonymous memory, in order."""
    try:
        with open(_PROCESS / "maps", encoding="utf-8", errors="replace") as file:
            return list(_read_mappings(file))
    except (OSError, ValueError, IndexError):  # the file is missing, or has another format
        return []


def _read_mappings(lines: Iterable[str]) -> Iterator[Range]:
    for line in lines:
        place, rights, _, _, *file = line.split()  # 7f00-7f80 rw-p 00000000 00:00 0
        if rights == "rw-p" and file in (["0"], ["0", "[heap]"]):
            start, _, end = place.partition("-")
            yield int(start, 16), int(end, 16)


def _without(ranges: Iterable[Range], others: Iterable[Range]) -> Iterator[Range]:
    """Yield the parts of ranges that others do not cover, in order."""
    left = sorted(others)
    for start, end in ranges:
        while left and left[0][1] <= start:
            left.pop(0)
        for other_start, other_end in left:
            if other_start >= end:
                break
            if start < other_start:
                yield start, other_start
            start = max(start, other_end)
        if start < end:
            yield start, end


def _aligned(ranges: Iterable[Range], size: int) -> Iterator[Range]:
    """Yield the parts of ranges that consist of whole, aligned pages of a size."""
    for start, end in ranges:
        first, last = -(-start // size) * size, end // size * size
        if first < last:
            yield first, last


def _used(start: int, end: int, size: int) -> Iterator[Range]:
    """Yield the parts of a range, in whole pages of a size, that are resident."""
    state = numpy.zeros((end - start) // mmap.PAGESIZE, dtype=numpy.uint8)
    if _library().mincore(start, end - start, state.ctypes.data):
        return  # it is no longer mapped
    used = (state & 1).reshape(-1, size // mmap.PAGESIZE).mean(1) >= _LEAST_USED
    edges = numpy.flatnonzero(numpy.diff(used, prepend=False, append=False))
    for first, last in edges.reshape(-1, 2).tolist():
        yield start + first * size, start + last * size


def _move(start: int, end: int, size: int) -> int:
    """Move memory into huge pages; return how many bytes were moved. A busy system refuses some."""
    if _collapse(start, end):
        return end - start
    return sum(size for each in range(start, end, size) if _collapse(each, each + size))


def _collapse(start: int, end: int) -> bool:
    return not _library().madvise(start, end - start, _MADV_COLLAPSE)


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return library

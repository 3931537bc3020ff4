"""Payloads that are mapped from a file: memory that the system can take back, since the file has it."""

from __future__ import annotations

import contextlib
import mmap
from typing import BinaryIO

import numpy

Bytes = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]


def map_payload(file: BinaryIO, start: int, size: int) -> Bytes:
    """Return bytes of an open file, mapped; what is written to them is not written to the file."""
    if not size:
        return numpy.empty(0, dtype=numpy.uint8)
    whole = mmap.mmap(file.fileno(), start + size, access=mmap.ACCESS_COPY)
    return numpy.frombuffer(whole, dtype=numpy.uint8)[start:]


def release_pages(payload: Bytes) -> None:
    """Give the memory of a mapped payload back until it is read again; of another payload, do nothing.

    Nothing must have been written to it.
    """
    base: object = payload
    while isinstance(base, (numpy.ndarray, memoryview)):
        base = base.base if isinstance(base, numpy.ndarray) else base.obj
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        with contextlib.suppress(OSError):  # it costs memory, and nothing else
            base.madvise(mmap.MADV_DONTNEED)

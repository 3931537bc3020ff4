"""Payloads that lie in a file: memory that the system can take back, since the file has it."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import weakref
from typing import BinaryIO

import numpy

from torchport.targets.user_directory import cache_directory, make_private

Bytes = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]

# In bytes. Smaller payloads lie in memory.
_LARGE = 1 << 24
# The files of `new_payload`, by address.
_rooms: dict[int, weakref.ref[mmap.mmap]] = {}


def map_payload(file: BinaryIO, start: int, size: int) -> Bytes:
    """Return bytes of an open file, mapped; what is written to them is not written to the file."""
    if not size:
        return numpy.empty(0, dtype=numpy.uint8)
    whole = mmap.mmap(file.fileno(), start + size, access=mmap.ACCESS_COPY)
    return numpy.frombuffer(whole, dtype=numpy.uint8)[start:]


def new_payload(size: int) -> Bytes:
    """Return room for a payload that is read from somewhere; a large one's lies in a file without a name.

    It is in the user's cache directory, and gone once nothing refers to the payload. Unlike the file that
    the bytes come from, nobody else can change it or cut it off. Where there is no room it lies in memory.
    """
    if size < _LARGE or not hasattr(os, "posix_fallocate"):
        return numpy.empty(size, dtype=numpy.uint8)
    try:
        make_private(cache_directory())
        with tempfile.TemporaryFile(dir=cache_directory()) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a disk that is full is noticed here
            room = mmap.mmap(file.fileno(), size)
    except OSError:
        return numpy.empty(size, dtype=numpy.uint8)
    made = numpy.frombuffer(room, dtype=numpy.uint8)
    address = made.ctypes.data
    _rooms[address] = weakref.ref(room, lambda _: _rooms.pop(address, None))
    return made


def release_pages(payload: Bytes) -> None:
    """Give the memory of a mapped payload back until it is read again; of another payload, do nothing.

    Nothing must have been written to it since it was mapped, unless `new_payload` made it.
    """
    base: object = payload
    while isinstance(base, (numpy.ndarray, memoryview)):
        base = base.base if isinstance(base, numpy.ndarray) else base.obj
    if not isinstance(base, mmap.mmap):
        found = _rooms.get(payload.ctypes.data)  # torch's tensors do not show what they lie in
        base = found() if found is not None else None
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        with contextlib.suppress(OSError):  # it costs memory, and nothing else
            base.madvise(mmap.MADV_DONTNEED)

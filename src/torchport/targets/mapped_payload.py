"""File-backed payloads: memory that the system can reclaim, since the file has the contents."""

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

# In bytes. Smaller payloads are kept in anonymous memory.
_LARGE = 1 << 24
# The files of `new_payload`, by address.
_mappings: dict[int, weakref.ref[mmap.mmap]] = {}


def map_payload(file: BinaryIO, start: int, size: int) -> Bytes:
    """Return bytes of an open file, mapped copy-on-write: writes do not reach the file."""
    if not size:
        return numpy.empty(0, dtype=numpy.uint8)
    whole = mmap.mmap(file.fileno(), start + size, access=mmap.ACCESS_COPY)
    return numpy.frombuffer(whole, dtype=numpy.uint8)[start:]


def new_payload(size: int) -> Bytes:
    """Allocate a payload to be filled; a large one is backed by an unnamed temporary file.

    The file is in the user's cache directory, and is freed once nothing refers to the payload. Unlike the
    file that the bytes come from, it cannot be modified or truncated by others. If that fails, as with a full
    disk, anonymous memory is used instead.
    """
    if size < _LARGE or not hasattr(os, "posix_fallocate"):
        return numpy.empty(size, dtype=numpy.uint8)
    try:
        make_private(cache_directory())
        with tempfile.TemporaryFile(dir=cache_directory()) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # fails here if the disk is full
            mapping = mmap.mmap(file.fileno(), size)
    except OSError:
        return numpy.empty(size, dtype=numpy.uint8)
    made = numpy.frombuffer(mapping, dtype=numpy.uint8)
    address = made.ctypes.data
    _mappings[address] = weakref.ref(mapping, lambda _: _mappings.pop(address, None))
    return made


def release_pages(payload: Bytes) -> None:
    """Release the pages of a mapped payload until it is read again; do nothing for other payloads.

    It must not have been written to since it was mapped, unless `new_payload` made it.
    """
    base: object = payload
    while isinstance(base, (numpy.ndarray, memoryview)):
        base = base.base if isinstance(base, numpy.ndarray) else base.obj
    if not isinstance(base, mmap.mmap):
        found = _mappings.get(payload.ctypes.data)  # torch's tensors do not expose the memory's owner
        base = found() if found is not None else None
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        with contextlib.suppress(OSError):  # a failure costs only memory
            base.madvise(mmap.MADV_DONTNEED)

"""Reads words of memory from many places at once.

Guards look at one word in each of hundreds of objects, most of which are not in the processor's caches. One
by one, each of these reads waits for the one before; in one gather, the processor waits for many at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy
from numpy.lib.stride_tricks import as_strided

Words = numpy.ndarray[Any, numpy.dtype[Any]]


class MemoryWords:
    """Words of 4 or 8 bytes, by their addresses.

    Whoever reads them must keep what lies there alive.

    Args:
        addresses: where they are; each is rounded down to a multiple of `size`.
        size: 4 or 8 bytes.

    Example:
        >>> numbers = numpy.arange(4, dtype=numpy.uint32)
        >>> words = MemoryWords([numbers.ctypes.data + 8, numbers.ctypes.data], 4)
        >>> words.read().tolist()
        [2, 0]
    """

    def __init__(self, addresses: Sequence[int], size: int) -> None:
        places = [address // size for address in addresses]
        first = min(places, default=0)
        self._places = numpy.array([place - first for place in places], dtype=numpy.int64)
        if places:
            kind = ctypes.c_uint32 if size == 4 else ctypes.c_uint64
            word = numpy.ctypeslib.as_array((kind * 1).from_address(first * size))
            # All of memory from there on; nothing of it is read but those words.
            self._memory = as_strided(
                word, shape=(max(places) - first + 1,), strides=(size,), writeable=False
            )
        else:
            self._memory = numpy.zeros(0, dtype=numpy.uint32)

    def read(self) -> Words:
        """Return the words as they are now."""
        return self._memory.take(self._places)

"""Looks for garbage rarely while graphs are made.

Graphs are millions of small objects that stay, and Python looks through them whenever a few more have been
made. Of a training graph of 54,565 ops that was a twentieth of the time; of small graphs it is not seen.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Of Python's three generations: so many new objects, looks at the first, looks at the second.
_RARELY = (100_000, 50, 1_000)

_lock = threading.Lock()
_within = 0  # how many are in it, in all threads
_before = gc.get_threshold()


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect cycles rarely meanwhile, in all threads; afterwards as it was. Does nothing if none are.

    Example:
        >>> before = gc.get_threshold()
        >>> with collecting_rarely():
        ...     gc.get_threshold() > before
        True
        >>> gc.get_threshold() == before
        True
    """
    global _within, _before
    with _lock:
        if not _within:
            _before = gc.get_threshold()
            if 0 < _before[0] < _RARELY[0]:
                gc.set_threshold(*_RARELY)
        _within += 1
    try:
        yield
    finally:
        with _lock:
            _within -= 1
            if not _within and gc.get_threshold() == _RARELY:  # nobody else has changed it
                gc.set_threshold(*_before)

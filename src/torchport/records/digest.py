"""Digests of large buffers, to detect corruption and to tell buffers apart."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

_PIECE = 1 << 23  # bytes; with smaller pieces, switching threads costs more than it saves
_PREFIX = b"torchport.digest/1"


def digest_of(data: memoryview) -> str:
    """Return the SHA-256 of a buffer's length and its pieces' SHA-256s, which are computed in parallel.

    Args:
        data: the buffer, as a one-dimensional view of bytes.

    Example:
        >>> digest_of(memoryview(b"one")) == digest_of(memoryview(b"two"))
        False
    """
    pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
    whole = hashlib.sha256(_PREFIX + len(data).to_bytes(8, "little"))
    if len(pieces) < 2:
        found = [_sha256(piece) for piece in pieces]
    else:
        with ThreadPoolExecutor(min(len(pieces), _processors())) as pool:
            found = list(pool.map(_sha256, pieces))
    for piece in found:
        whole.update(piece)
    return whole.hexdigest()


def _sha256(piece: memoryview) -> bytes:
    return hashlib.sha256(piece).digest()


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not everywhere
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1

"""Locks open files, where the system can: POSIX has such locks, Windows has none."""

from __future__ import annotations

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # has_locks() says so


def has_locks() -> bool:
    """Whether the system has locks of files."""
    return fcntl is not None


def lock_file(descriptor: int, *, shared: bool = False) -> None:
    """Lock an open file until it is closed, or its process ends.

    Raises:
        OSError: another process holds it, or the file system has no locks.
    """
    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

"""Locks open files on systems that have `flock`: POSIX systems do, Windows does not."""

from __future__ import annotations

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # has_locks() checks for None


def has_locks() -> bool:
    """Return whether the system supports file locks."""
    return fcntl is not None


def lock_file(descriptor: int, *, shared: bool = False) -> None:
    """Lock an open file, without waiting, until it is closed or the process ends.

    Raises:
        OSError: another process holds it, or the file system has no locks.
    """
    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

"""Temporary folders that are always removed in the end, even those of a process that was killed.

A folder is locked for as long as its process lives, however it ends. Creating a folder first removes this
user's folders that no process holds any more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from torchport.records.file_lock import has_locks, lock_file

_PREFIX = "torchport-"
_LOCK = ".lock"
_DAY = 86400.0


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Yield a folder that only this user can access, and remove it with its contents afterwards.

    Args:
        purpose: a word for the folder's name that says what it is for.

    Example:
        >>> with temporary_folder("build") as folder:
        ...     (folder / "graph.json").write_text("{}")
    """
    _sweep_all()
    path, lock = _make(purpose)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _sweep_all() -> None:
    """Remove the folders whose processes are gone."""
    if not has_locks():
        return
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _sweep(Path(entry.path))


def _make(purpose: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        if has_locks():
            with contextlib.suppress(OSError):  # some file systems have no locks: it cannot be swept either
                lock_file(lock)
        if os.fstat(lock).st_nlink:
            return path, lock
        os.close(lock)  # another process took it for abandoned and removed it before it was locked


def _sweep(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - found.st_mtime > _DAY:  # a newer one may be about to get its lock file
            shutil.rmtree(path, ignore_errors=True)
        return
    try:
        lock_file(lock)  # raises if its process is alive
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)

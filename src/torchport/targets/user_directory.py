"""The user's own directory on disk, and files in it that no other user can have written.

A file that controls what is computed must be the user's own: on a shared machine another user may plant one,
or a pipe that blocks forever. On systems without owners and modes (Windows) nothing is checked.
"""

from __future__ import annotations

import functools
import logging
import os
import tempfile
from io import BufferedReader
from pathlib import Path

from torchport.records import open_regular

_log = logging.getLogger(__name__)


class NotPrivate(OSError):
    """A file or directory that another user could have written."""


def cache_directory() -> Path:
    """Return torchport's cache directory: `TORCHPORT_CACHE_DIR`, or `torchport` in the user's cache."""
    given = os.environ.get("TORCHPORT_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "torchport"
    try:
        return Path.home() / ".cache" / "torchport"
    except (
        RuntimeError
    ):  # a user without a home, as in containers; `make_private` checks that the directory is this user's
        return Path(tempfile.gettempdir()) / f"torchport_cache_{getattr(os, 'getuid', int)()}"


def make_private(directory: Path) -> None:
    """Make a directory with access for the user only, whatever the umask; an existing one must be private.

    Raises:
        OSError: it cannot be made, or others may write to it.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        need_private(directory)
        return
    directory.chmod(0o700)


def need_private(directory: Path) -> None:
    """Reject a directory that others may write to.

    Raises:
        NotPrivate: another user owns it, or its mode lets others write.
        OSError: it does not exist.
    """
    _check(os.stat(directory), str(directory))


def open_private(path: Path) -> BufferedReader:
    """Open one of the user's own files for reading, without blocking.

    Raises:
        NotPrivate: others may write to it.
        OSError: it cannot be opened, or is not a regular file.
    """
    file = open_regular(path, follow_links=False)
    try:
        _check(os.fstat(file.fileno()), str(path))
    except BaseException:
        file.close()
        raise
    return file  # type: ignore[return-value]  # as `os.fdopen` returns


def _check(found: os.stat_result, name: str) -> None:
    if not hasattr(os, "geteuid"):
        return  # no owners here
    if found.st_uid not in (os.geteuid(), 0):  # root can change the user's files anyway
        raise NotPrivate(f"{name} belongs to another user")
    if found.st_mode & 0o022:
        raise NotPrivate(f"others may write to {name}")


@functools.cache
def warn_once(directory: Path, reason: str) -> None:
    """Warn, once per process, that a directory is not used."""
    _log.warning(
        "%s is not used: %s; to use it, run chmod go-w on it, or set TORCHPORT_CACHE_DIR to one of your own",
        directory,
        reason,
    )

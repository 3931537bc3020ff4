"""Opens untrusted files: regular files only, nothing that blocks or never ends."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

# A pipe is opened without waiting for a writer; it is refused before anything is read.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a regular file",
}


class NotReadable(OSError):
    """A file that is of another kind than regular, or too large. Its text says what the file is or has."""


def open_regular(path: Path, most_bytes: int | None = None, *, follow_links: bool = True) -> BinaryIO:
    """Open a file to read its bytes.

    Args:
        path: the file.
        most_bytes: how large it may be.
        follow_links: whether it may be a symbolic link to the file.

    Raises:
        OSError: it cannot be opened, is a directory, a device or a pipe, or is too large.
    """
    descriptor = os.open(path, _FLAGS if follow_links else _FLAGS | getattr(os, "O_NOFOLLOW", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotReadable(None, f"it is {kind_of(status.st_mode)}, not a regular file")
        if most_bytes is not None and status.st_size > most_bytes:
            raise NotReadable(None, f"it has {status.st_size:,} bytes, and at most {most_bytes:,} are read")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def kind_of(mode: int) -> str:
    """Return what a file of this mode is, with its article."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")

"""Opens untrusted files: only regular ones, nothing that blocks or never ends."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

# O_NONBLOCK opens a pipe without waiting for a writer; it is rejected before anything is read.
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
    """A file is not regular, or is too large; the message says what it is, or its size."""


def open_regular(path: Path, most_bytes: int | None = None, *, follow_links: bool = True) -> BinaryIO:
    """Open a file to read its bytes.

    Args:
        path: the file.
        most_bytes: the largest size that is accepted; None for no limit.
        follow_links: whether `path` may be a symbolic link.

    Raises:
        OSError: the file cannot be opened, is a directory, a device or a pipe, or is too large.
    """
    descriptor = os.open(path, _FLAGS if follow_links else _FLAGS | getattr(os, "O_NOFOLLOW", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotReadable(None, f"it is {kind_of(status.st_mode)}, not a regular file")
        if most_bytes is not None and status.st_size > most_bytes:
            raise NotReadable(None, f"its {status.st_size:,} bytes exceed the limit of {most_bytes:,}")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def kind_of(mode: int) -> str:
    """Return the type of a file with this mode, with an article."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")

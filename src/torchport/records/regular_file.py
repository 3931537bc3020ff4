"""Opens files of strangers: a file with bytes in it, and nothing that waits or never ends."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

# A pipe is opened without waiting for a writer; it is refused before anything is read.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path, most_bytes: int | None = None) -> BinaryIO:
    """Open a file to read its bytes.

    Args:
        path: the file.
        most_bytes: how large it may be.

    Raises:
        OSError: it cannot be opened, is a directory, a device or a pipe, or is too large.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(None, "it is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise OSError(None, "it is not a regular file")
        if most_bytes is not None and status.st_size > most_bytes:
            raise OSError(None, f"it has {status.st_size} bytes, and may have {most_bytes}")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise

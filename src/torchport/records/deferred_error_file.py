"""A file for torch's archive writer, which aborts the process if a write fails: errors are deferred."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class ErrorKeepingFile(io.RawIOBase):
    """A file whose writes always appear to succeed; after the first failure nothing more is written.

    Args:
        file: the file that the bytes are written to.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.error: OSError | None = None

    def writable(self) -> bool:
        """Return True: the file is always writable."""
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]  # any buffer
        """Write bytes, or store the error if that fails."""
        size = memoryview(data).nbytes
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:  # a full disk, a quota, a limit
                self.error = error
        return size

    def seekable(self) -> bool:
        """Return True: torch's writer requires a seekable file."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Ignore the seek: torch rewinds the file when it is done."""
        return 0


@contextmanager
def written_by_torch(path: Path) -> Iterator[ErrorKeepingFile]:
    """Yield a file for torch to write.

    Raises:
        OSError: a write failed; raised when torch is done.
    """
    with path.open("wb") as file:
        keeping = ErrorKeepingFile(file)
        yield keeping
        if keeping.error is not None:
            raise keeping.error

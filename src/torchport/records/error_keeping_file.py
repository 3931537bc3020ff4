"""A file for torch's archive writer, which ends the process if a write fails: errors are kept until later."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class ErrorKeepingFile(io.RawIOBase):
    """A file whose writes always succeed; from the first that does not, nothing more is written.

    Args:
        file: where the bytes go.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.error: OSError | None = None

    def writable(self) -> bool:
        """Whether it can be written: always."""
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]  # any buffer
        """Write bytes, or keep the error that comes."""
        size = memoryview(data).nbytes
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:  # a full disk, a quota, a limit
                self.error = error
        return size

    def seekable(self) -> bool:
        """Whether it has a place to go back to; torch asks."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Stay at the end: torch goes back to the start when it is done."""
        return 0


@contextmanager
def written_by_torch(path: Path) -> Iterator[ErrorKeepingFile]:
    """Give a file for torch to write.

    Raises:
        OSError: it cannot be written; raised when torch is done.
    """
    with path.open("wb") as file:
        keeping = ErrorKeepingFile(file)
        yield keeping
        if keeping.error is not None:
            raise keeping.error

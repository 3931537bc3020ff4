"""An output stream that survives a closed pipe or a full disk."""

from __future__ import annotations

import errno
import io
import os
from typing import TextIO


class TolerantStream(io.TextIOBase):
    """Writes text until that fails, then drops the rest, so that the command still finishes its work.

    A closed pipe, as with `head`, is not a failure. A full disk is: `failure` holds the error.

    Args:
        file: the stream to write to.
    """

    def __init__(self, file: TextIO) -> None:
        self.failure: OSError | None = None
        self._file = file

    def write(self, text: str) -> int:
        """Write text, or drop it if writing has failed."""
        if not isinstance(text, str):
            raise TypeError(f"expected text, not {type(text).__name__}")
        try:
            self._file.write(text)
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer."""
        if self._file.closed:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Redirect the descriptor to /dev/null: buffered text would fail again when the process ends."""
        if error.errno != errno.EPIPE and self.failure is None:
            self.failure = error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._file.fileno())
        os.close(nowhere)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base has an attribute
        """The encoding of the file."""
        return self._file.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # the base has an attribute
        """How characters that the encoding lacks are handled."""
        return self._file.errors

    def fileno(self) -> int:
        """Return the file's descriptor."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether the file is a terminal."""
        return self._file.isatty()

    def writable(self) -> bool:
        """Return True."""
        return True

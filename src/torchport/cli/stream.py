"""A stream that a command writes to, even if its reader goes away."""

from __future__ import annotations

import errno
import io
import os
from typing import TextIO


class ToleratingStream(io.TextIOBase):
    """Passes text on until that fails; then the rest is dropped, and the command still does its work.

    A closed pipe, as with `head`, is not a failure. A full disk is: `failure` says so.

    Args:
        file: where the text goes.
    """

    def __init__(self, file: TextIO) -> None:
        self.failure: OSError | None = None
        self._file = file

    def write(self, text: str) -> int:
        """Write a text, or drop it if there is no reader."""
        if not isinstance(text, str):
            raise TypeError(f"expected text, not {type(text).__name__}")
        try:
            self._file.write(text)
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Pass on what is held back."""
        if self._file.closed:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Send what is held back, and all that comes, to where it is lost: it would fail again at the end."""
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
        """What becomes of signs that the encoding lacks."""
        return self._file.errors

    def fileno(self) -> int:
        """Return the file's descriptor."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether a person is looking."""
        return self._file.isatty()

    def writable(self) -> bool:
        """Whether it can be written: always."""
        return True

"""The file that a package is written to: whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchport.errors import PackageError, RecordError
from torchport.records import atomic_write


@contextmanager
def package_file(path: Path) -> Iterator[Path]:
    """Give a temporary file to write; it takes the place of `path` when all is written.

    Raises:
        PackageError: the file cannot be written.
    """
    try:
        with atomic_write(path) as temporary:
            yield temporary
    except RecordError as error:
        raise PackageError(error.what, where=error.where) from error

"""Writes a package's file atomically."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchport.errors import PackageError, RecordError
from torchport.records import atomic_write


@contextmanager
def package_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write, which replaces `path` on success.

    Raises:
        PackageError: the file cannot be written.
    """
    try:
        with atomic_write(path) as temporary:
            yield temporary
    except RecordError as error:
        raise PackageError(error.what, where=error.where) from error

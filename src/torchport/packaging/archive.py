"""Reads the records of a `.pt2` archive: a zip file without compression. Nothing in it is executed.

`torch.export.load` opens the same file, but unpickles parts of it: a file from elsewhere is not read so.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy

from torchport.errors import PackageError
from torchport.records import JSON

PACKAGE = "torchport.json"  # what torchport knows of the archive; among its extra files
Bytes = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]

_CHUNK = 1 << 24


class Archive:
    """An open `.pt2` archive.

    Args:
        path: the file.

    Raises:
        PackageError: it cannot be read, or is none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._size = path.stat().st_size
            self._file = zipfile.ZipFile(path)
        except OSError as error:
            raise PackageError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise PackageError(
                f"is no package: {error}", where=str(path), remedy="write it again with torchport.save"
            ) from error
        self._root = self._file.namelist()[0].split("/")[0] if self._file.namelist() else ""

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def has(self, name: str) -> bool:
        """Whether there is a record of that name."""
        return f"{self._root}/{name}" in self._file.namelist()

    def json(self, name: str) -> JSON:
        """Return a record that is JSON.

        Raises:
            PackageError: there is none, or it is damaged.
        """
        try:
            data: JSON = json.loads(self.bytes(name).tobytes())
        except (ValueError, RecursionError) as error:
            raise PackageError(f"{name} is not JSON: {error}", where=str(self._path)) from error
        return data

    def bytes(self, name: str) -> Bytes:
        """Return a record's bytes; its checksum is checked.

        Raises:
            PackageError: there is none, or it is damaged.
        """
        try:
            info = self._file.getinfo(f"{self._root}/{name}")
        except KeyError as error:
            raise PackageError(f"the archive has no {name}", where=str(self._path)) from error
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > self._size:
            raise PackageError(f"{name} has an impossible size", where=str(self._path))
        try:
            made = numpy.empty(info.file_size, dtype=numpy.uint8)
            with self._file.open(info) as file:
                at = 0
                while chunk := file.read(_CHUNK):
                    made[at : at + len(chunk)] = numpy.frombuffer(chunk, dtype=numpy.uint8)
                    at += len(chunk)
        except (
            OSError,
            zipfile.BadZipFile,
            EOFError,
            RuntimeError,
            NotImplementedError,
            ValueError,
        ) as error:
            raise PackageError(
                f"{name} is damaged: {error}", where=str(self._path), remedy="get the file again"
            ) from error
        if at != info.file_size:
            raise PackageError(f"{name} is cut off", where=str(self._path), remedy="get the file again")
        return made


def weight_files(archive: Archive, model: str) -> dict[str, str]:
    """Return which record holds which weight of an exported program.

    Raises:
        PackageError: the archive's table of weights is not one.
    """
    table = archive.json(f"data/weights/{model}_weights_config.json")
    entries = table.get("config") if isinstance(table, Mapping) else None
    if not isinstance(entries, Mapping):
        raise PackageError(f"the table of weights of {model} is damaged")
    return {
        name: f"data/weights/{entry['path_name']}"
        for name, entry in entries.items()
        if isinstance(entry, Mapping) and "path_name" in entry
    }

"""Reads the records of a `.pt2` archive: a zip file without compression. Nothing in it is executed.

`torch.export.load` opens the same file, but unpickles parts of it: a file from elsewhere is not read so.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from types import TracebackType

import numpy

from torchport.errors import PackageError
from torchport.records import JSON

PACKAGE = "torchport.json"  # what torchport knows of the archive; among its extra files
Bytes = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]

# A zip file's head of a record: its mark, flags, and the lengths of its name and of what follows that.
_HEAD = struct.Struct("<4s2xH18xHH")
_ENCRYPTED = 1


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

    def bytes(self, name: str, *, check: bool = True) -> Bytes:
        """Return a record's bytes.

        Args:
            name: the record's name.
            check: whether its checksum is checked; who knows its digest need not.

        Raises:
            PackageError: there is none, or it is damaged.
        """
        try:
            info = self._file.getinfo(f"{self._root}/{name}")
        except KeyError as error:
            raise PackageError(f"the archive has no {name}", where=str(self._path)) from error
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > self._size:
            raise PackageError(f"{name} has an impossible size", where=str(self._path))
        made = numpy.empty(info.file_size, dtype=numpy.uint8)
        try:
            with self._path.open("rb", buffering=0) as file:
                file.seek(_start(file, info))
                at = 0
                while at < made.size and (count := file.readinto(made[at:].data)):
                    at += count
        except (OSError, ValueError) as error:
            raise PackageError(
                f"{name} is damaged: {error}", where=str(self._path), remedy="get the file again"
            ) from error
        if at != made.size or (check and zlib.crc32(made.data) != info.CRC):
            raise PackageError(
                f"{name} is damaged: it is cut off, or its checksum is another one",
                where=str(self._path),
                remedy="get the file again",
            )
        return made


def _start(file: FileIO, info: zipfile.ZipInfo) -> int:
    """Return where a record's bytes start: after a head of its own, which says how long it is.

    Raises:
        ValueError: there is no such head.
    """
    file.seek(info.header_offset)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise ValueError("its head is cut off")
    mark, flags, name_bytes, extra_bytes = _HEAD.unpack(head)
    if mark != b"PK\x03\x04" or flags & _ENCRYPTED:
        raise ValueError("its head is none")
    return info.header_offset + _HEAD.size + int(name_bytes) + int(extra_bytes)


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

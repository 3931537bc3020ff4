"""Reads the records of a `.pt2` archive, an uncompressed zip file. Nothing in it is executed.

`torch.export.load` opens the same file, but unpickles parts of it, which is unsafe for untrusted files.
"""

from __future__ import annotations

import itertools
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from types import TracebackType

import numpy

from torchport.errors import PackageError, RecordError, TorchportError, one_line
from torchport.records import JSON, open_regular, parse_json

PACKAGE = "torchport.json"  # torchport's description of the archive, one of its extra files
Bytes = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]

# A zip file's local header: signature, flags, and the lengths of the name and of the extra field.
_HEAD = struct.Struct("<4s2xH18xHH")
_ENCRYPTED = 1
_MOST_JSON = 1 << 28  # bytes; the largest models need a few megabytes


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error while reading a file into a `PackageError` that names the file."""
    try:
        yield
    except PackageError as error:
        raise PackageError(error.what, where=error.where or str(path), remedy=error.remedy) from error
    except TorchportError as error:  # a target that is not available, a record of another version
        raise PackageError(one_line(error), where=str(path)) from error
    except Exception as error:  # a malformed file can fail anywhere in torch's or torchport's code
        raise PackageError(
            f"is damaged: {one_line(error)}", where=str(path), remedy="get the file again"
        ) from error


def path_of(path: str | os.PathLike[str]) -> Path:
    """Return a file's path.

    Raises:
        PackageError: it cannot be one.
    """
    try:
        given = os.fspath(path)
    except TypeError as error:
        raise PackageError(f"a {type(path).__name__} is not a path: give a string or a Path") from error
    if not isinstance(given, str) or "\0" in given:
        raise PackageError(f"{given!r} is not a path: give a string without a null character, or a Path")
    return Path(given)


def in_memory(size: int) -> Bytes:
    """Allocate `size` bytes of memory."""
    return numpy.empty(size, dtype=numpy.uint8)


class Archive:
    """An open `.pt2` archive.

    Args:
        path: the file.

    Raises:
        PackageError: the file cannot be read, or is not a `.pt2` archive.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open_regular(path)
        except OSError as error:
            raise PackageError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
        try:
            with zipfile.ZipFile(self._file) as archive:
                entries = archive.infolist()
            self.size = os.fstat(self._file.fileno()).st_size
            _refuse_overlaps(entries, self.size)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            self._file.close()
            raise PackageError(
                f"is not a package: {error}", where=str(path), remedy="write it again with torchport.save"
            ) from error
        self._root = entries[0].filename.split("/")[0] if entries else ""
        self._entries = {entry.filename: entry for entry in entries}

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def has(self, name: str) -> bool:
        """Whether the archive has a record of that name."""
        return f"{self._root}/{name}" in self._entries

    def json(self, name: str) -> JSON:
        """Return a JSON record, parsed.

        Raises:
            PackageError: the record is missing or damaged.
        """
        try:
            return parse_json(self.bytes(name, most_bytes=_MOST_JSON).tobytes(), name)
        except RecordError as error:
            raise PackageError(f"{error.where} {error.what}", where=str(self._path)) from error

    def bytes(
        self,
        name: str,
        *,
        check: bool = True,
        most_bytes: int | None = None,
        room: Callable[[int], Bytes] = in_memory,
    ) -> Bytes:
        """Return a record's bytes.

        Args:
            name: the record's name.
            check: whether to verify its CRC; unnecessary if the caller checks its digest.
            most_bytes: the maximum size.
            room: allocates the memory to read into.

        Raises:
            PackageError: the record is missing or damaged.
        """
        info = self._entries.get(f"{self._root}/{name}")
        if info is None:
            raise PackageError(f"the archive has no {name[:80]}", where=str(self._path))
        limit = self.size if most_bytes is None else min(self.size, most_bytes)
        # Uncompressed records have equal sizes: overlaps are detected by one, reading uses the other.
        is_stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        if not is_stored or info.file_size > limit:
            raise PackageError(f"{name} has an impossible size", where=str(self._path))
        made = room(info.file_size)
        try:
            file = self._file.raw  # type: ignore[attr-defined]  # unbuffered: reads straight into `made`
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
                f"{name} is damaged: it is truncated, or its checksum does not match",
                where=str(self._path),
                remedy="get the file again",
            )
        return made


def _refuse_overlaps(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse overlapping records, with which a small file could expand to a large one.

    Raises:
        ValueError: two records overlap, or one extends past the end of the file.
    """
    places = sorted((entry.header_offset, entry.compress_size) for entry in entries)
    starts = [start for start, _ in places] + [size]
    for (start, length), (_, following) in zip(places, itertools.pairwise(starts), strict=True):
        if start < 0 or start + _HEAD.size + length > following:
            raise ValueError("its records overlap")


def _start(file: FileIO, info: zipfile.ZipInfo) -> int:
    """Return the offset of a record's bytes, which follow a local header of variable length.

    Raises:
        ValueError: the header is missing or truncated.
    """
    file.seek(info.header_offset)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise ValueError("its header is truncated")
    mark, flags, name_bytes, extra_bytes = _HEAD.unpack(head)
    if mark != b"PK\x03\x04" or flags & _ENCRYPTED:
        raise ValueError("it has no header")
    return info.header_offset + _HEAD.size + int(name_bytes) + int(extra_bytes)


def weight_files(archive: Archive, model: str) -> dict[str, str]:
    """Map each weight of an exported program to the record that holds it.

    Raises:
        PackageError: the archive has no weight table for it, or the table is damaged.
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

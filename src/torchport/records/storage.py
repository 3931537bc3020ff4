"""Stores records in files: writes are atomic, and every read error names the file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from torchport.errors import RecordError
from torchport.records.json_text import parse_json
from torchport.records.plain_files import read_plain_file
from torchport.records.record import JSON, Record

RecordType = TypeVar("RecordType", bound=Record)
_ABANDONED = 3600  # seconds after which a temporary file counts as abandoned
MOST_BYTES = 64 << 20
"""The largest record file that is read, in bytes; the largest that torchport writes are a few megabytes."""


def write_text(text: str, path: Path) -> None:
    """Write a file atomically: a reader sees the old content or the new, never a mixture.

    Raises:
        RecordError: the file cannot be written.
    """
    write_texts({path: text})


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write several text files, each atomically; if one cannot be written, none is.

    Raises:
        RecordError: a file cannot be written; the error names it.
    """
    # An error's text may contain a lone surrogate, which UTF-8 cannot encode. JSON decodes its escape.
    write_files({path: text.encode("utf-8", "backslashreplace") for path, text in texts.items()})


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write several files, each atomically; if one cannot be written, all are left as they were.

    Raises:
        RecordError: a file cannot be written; the error names it.
    """
    with contextlib.ExitStack() as stack:
        temporaries = {}
        for path, content in contents.items():
            temporaries[path] = stack.enter_context(_temporary_for(path))
            temporaries[path].write_bytes(content)
        if temporaries:
            _replace_all(temporaries)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write; it replaces `path` when the block succeeds, and is removed otherwise.

    One that a killed process left is removed by a later call, after an hour.

    Raises:
        RecordError: the file cannot be written.
    """
    _remove_abandoned(path)
    with _temporary_for(path) as temporary:
        yield temporary
        _replace_all({path: temporary})


@contextlib.contextmanager
def _temporary_for(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; if the block fails, it and folders made for it are removed."""
    temporary = _hidden_name(path)
    made: list[Path] = []
    try:
        with _naming(path):
            _make_folder(path.parent, made)
            if path.is_dir():
                raise IsADirectoryError(None, "it is a directory")
            yield temporary
    except BaseException:
        with contextlib.suppress(OSError):  # it was never created
            temporary.unlink()
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # somebody else wrote to it meanwhile
                folder.rmdir()
        raise


def _replace_all(temporaries: Mapping[Path, Path]) -> None:
    """Rename each temporary file to its path; if one cannot be, put back what the others replaced."""
    for path, temporary in temporaries.items():
        with _naming(path), temporary.open("rb") as file:
            os.fsync(file.fileno())  # after a crash, the name must not exist without its content
    old: dict[Path, Path | None] = {}
    replaced: list[Path] = []
    *others, last = temporaries
    try:
        for path in others:
            with _naming(path):
                old[path] = _hidden_name(path) if os.path.lexists(path) else None
                _duplicate(path, old[path])
                os.replace(temporaries[path], path)
            replaced.append(path)
        with _naming(last):
            os.replace(temporaries[last], last)  # nothing can fail after it
    except BaseException:
        for path in reversed(replaced):
            with _naming(path):
                before = old.pop(path)
                path.unlink() if before is None else os.replace(before, path)
        raise
    finally:
        for unused in filter(None, old.values()):
            with contextlib.suppress(OSError):
                unused.unlink()


def _duplicate(path: Path, second: Path | None) -> None:
    """Give a file a second name, or copy it where that is not possible."""
    if second is not None:
        try:
            os.link(path, second, follow_symlinks=False)
        except OSError:  # not every file system has hard links, nor may every file of another user be linked
            shutil.copy2(path, second, follow_symlinks=False)


def _hidden_name(path: Path) -> Path:
    """Return a new name in the same folder, since a rename is atomic within one file system only."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files for `path` that nobody has written to for an hour."""
    name = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{32}\.tmp")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if not name.fullmatch(entry.name):
                continue
            with contextlib.suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED:
                    os.unlink(entry.path)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into errors that name the file."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"cannot be written: {error.strerror or error}", where=str(path)) from error


def _make_folder(folder: Path, made: list[Path]) -> None:
    """Create a folder and its parents; append each one created to `made`."""
    missing = [level for level in (folder, *folder.parents) if not level.exists()]
    for level in reversed(missing):
        level.mkdir(exist_ok=True)
        made.append(level)
    if not folder.is_dir():
        raise NotADirectoryError(None, f"{folder} is not a directory")


def write_record(record: Record, path: Path) -> None:
    """Write a record as JSON, atomically.

    Args:
        record: the record to write.
        path: the file; missing parent folders are created.

    Raises:
        RecordError: the file cannot be written.

    Example:
        >>> write_record(TensorSpec((1, 3), "float32"), Path("out") / file_name("input", "float32"))
    """
    write_text(json.dumps(record.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n", path)


def read_json(path: Path) -> JSON:
    """Read a JSON file.

    Raises:
        RecordError: the file cannot be read, is not a regular file, is too large or too deeply nested, or is
            not JSON.
    """
    return parse_json(read_plain_file(path, MOST_BYTES), str(path))


def read_record(path: Path, kind: type[RecordType]) -> RecordType:
    """Read a record from a file that `write_record` wrote.

    Raises:
        RecordError: the file cannot be read, or does not hold such a record; the error names the file.
    """
    return decode_record(read_json(path), kind, path)


def decode_record(data: JSON, kind: type[RecordType], path: Path) -> RecordType:
    """Build a record from a file's JSON.

    Raises:
        RecordError: the JSON is not such a record; the error names the file.
    """
    try:
        return kind.from_json(data)
    except RecordError as error:
        raise RecordError(f"{error.where}: {error.what}", where=str(path), remedy=error.remedy) from error


def file_name(*parts: str) -> str:
    """Return a record's file name, made from what identifies it, such as its model and target.

    The name is readable, and its digest distinguishes names that differ only in special characters.

    Example:
        >>> file_name("torchvision:resnet18", "openvino")
        'torchvision-resnet18-openvino-e13bde74.json'
    """
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(parts))[-80:].strip("-.")
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{readable}-{digest}.json"

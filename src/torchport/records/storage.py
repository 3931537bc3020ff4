"""Stores records in files: writes are atomic, and every read error names the file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from torchport.errors import RecordError
from torchport.records.json_text import parse_json
from torchport.records.plain_files import read_plain_file
from torchport.records.record import JSON, Record

RecordType = TypeVar("RecordType", bound=Record)
MOST_BYTES = 64 << 20
"""The largest record file that is read, in bytes; the largest that torchport writes are a few megabytes."""


def write_text(text: str, path: Path) -> None:
    """Write a file atomically: a reader sees the old content or the new, never a mixture.

    Raises:
        RecordError: the file cannot be written.
    """
    write_texts({path: text})


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write several text files, each atomically; if preparing one fails, none is replaced.

    Raises:
        RecordError: a file cannot be written; the error names it.
    """
    # An error's text may contain a lone surrogate, which UTF-8 cannot encode. JSON decodes its escape.
    write_files({path: text.encode("utf-8", "backslashreplace") for path, text in texts.items()})


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write several files, each atomically; if preparing one fails, no file or folder is left behind.

    Raises:
        RecordError: a file cannot be written; the error names it.
    """
    with contextlib.ExitStack() as stack:
        for path, content in contents.items():
            stack.enter_context(atomic_write(path)).write_bytes(content)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write; it replaces `path` when the block succeeds, and is removed otherwise.

    Raises:
        RecordError: the file cannot be written.
    """
    # In the same folder, since a rename is atomic within one file system only.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    made: list[Path] = []
    done = False
    try:
        _make_folder(path.parent, made)
        if path.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())  # after a crash, the name must not exist without its content
        os.replace(temporary, path)
        done = True
    except OSError as error:
        raise RecordError(f"cannot be written: {error.strerror or error}", where=str(path)) from error
    finally:
        with contextlib.suppress(OSError):  # it was renamed, or never created
            temporary.unlink()
        for folder in [] if done else reversed(made):
            with contextlib.suppress(OSError):  # somebody else wrote to it meanwhile
                folder.rmdir()


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

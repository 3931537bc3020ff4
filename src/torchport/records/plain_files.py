"""The files of an untrusted directory: regular files in real folders, never through a link.

A link in such a directory may lead anywhere, and a FIFO or a device has no end. What a file is, and how
large, is looked at before any of its bytes.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from torchport.errors import RecordError
from torchport.records.regular_file import kind_of, open_regular

_REMEDY = "put a copy of the file itself there, or remove it"


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What a directory holds of one ending.

    Args:
        files: the plain files, in order.
        refused: why each of the others is not read.
    """

    files: tuple[Path, ...]
    refused: tuple[RecordError, ...]

    def __bool__(self) -> bool:
        """Whether there is anything of that ending, be it good or bad."""
        return bool(self.files or self.refused)


def list_files(directory: Path, ending: str) -> FoundFiles:
    """Return a folder's files of an ending; a folder that is a link, or is not there, has none."""
    try:
        kind = directory.lstat().st_mode
    except OSError:
        return FoundFiles((), ())
    if not stat.S_ISDIR(kind):
        return FoundFiles((), (_refusal(directory, kind),))
    return _list(directory, ending, deep=False)


def list_all_files(directory: Path, ending: str) -> FoundFiles:
    """Return the files of an ending in a directory, which may itself be named by a link, and its folders."""
    return _list(directory, ending, deep=True)


def _list(directory: Path, ending: str, *, deep: bool) -> FoundFiles:
    files: list[Path] = []
    refused: list[RecordError] = []
    waiting = [directory]
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            refused.append(RecordError(f"cannot be read: {error.strerror or error}", where=str(folder)))
            continue
        for entry in entries:
            path = folder / entry.name
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except FileNotFoundError:
                continue  # a temporary file, say, of whoever is writing here
            if stat.S_ISDIR(mode):
                waiting += [path] if deep else []
            elif entry.name.endswith(ending) and stat.S_ISREG(mode):
                files.append(path)
            elif entry.name.endswith(ending) or (deep and _is_linked_folder(entry)):
                refused.append(_refusal(path, mode))
    return FoundFiles(tuple(sorted(files)), tuple(sorted(refused, key=lambda error: error.where)))


def _is_linked_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_symlink() and entry.is_dir()
    except OSError:  # it leads in a circle
        return False


def refuse_links(directory: Path, path: Path) -> None:
    """Refuse a path below a directory whose folders are not all real ones: it would lead out of it.

    Raises:
        RecordError: names the folder that is a link, or no folder.
    """
    folder = directory
    for name in path.relative_to(directory).parts[:-1]:
        folder = folder / name
        try:
            kind = folder.lstat().st_mode
        except FileNotFoundError:
            return  # to be made
        except OSError as error:
            raise RecordError(f"cannot be read: {error.strerror or error}", where=str(folder)) from error
        if not stat.S_ISDIR(kind):
            raise _refusal(folder, kind)


def read_plain_file(path: Path, most: int) -> bytes:
    """Return the content of a plain file.

    Args:
        path: the file.
        most: how many bytes it may have.

    Raises:
        RecordError: it cannot be read, is not a regular file, or is larger.
    """
    try:
        with open_regular(path, most) as file:
            content = file.read(most + 1)  # it may have grown, and some systems' files have no size
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    if len(content) > most:
        raise RecordError(f"has more than the {most:,} bytes that are read", where=str(path))
    return content


def _refusal(path: Path, mode: int) -> RecordError:
    reason = "which is not followed" if stat.S_ISLNK(mode) else "which is not read"
    return RecordError(f"is {kind_of(mode)}, {reason}", where=str(path), remedy=_REMEDY)

"""Lists and reads the files of an untrusted directory: regular files in real folders, never through links.

A link in such a directory may point anywhere, and a FIFO or a device may never end. A file's type and size
are checked before any of its bytes is read.
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
    """The files with a given ending in a directory.

    Args:
        files: the regular files, sorted.
        refused: an error for each other entry, saying why it is not read.
    """

    files: tuple[Path, ...]
    refused: tuple[RecordError, ...]

    def __bool__(self) -> bool:
        """Whether anything was found, readable or not."""
        return bool(self.files or self.refused)


def list_files(directory: Path, ending: str) -> FoundFiles:
    """Return a folder's files with an ending; none if the folder is missing or is itself a link."""
    try:
        kind = directory.lstat().st_mode
    except OSError:
        return FoundFiles((), ())
    if not stat.S_ISDIR(kind):
        return FoundFiles((), (_refusal(directory, kind),))
    return _list(directory, ending, deep=False)


def list_all_files(directory: Path, ending: str) -> FoundFiles:
    """Return the files with an ending in a directory, which may itself be a link, and in its subfolders."""
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
                continue  # such as the temporary file of another process that is writing here
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
    except OSError:  # a circular link
        return False


def refuse_links(directory: Path, path: Path) -> None:
    """Reject a path below a directory that passes through a link, and could so leave the directory.

    Raises:
        RecordError: a component is a link or not a folder; the error names it.
    """
    folder = directory
    for name in path.relative_to(directory).parts[:-1]:
        folder = folder / name
        try:
            kind = folder.lstat().st_mode
        except FileNotFoundError:
            return  # it is still to be created
        except OSError as error:
            raise RecordError(f"cannot be read: {error.strerror or error}", where=str(folder)) from error
        if not stat.S_ISDIR(kind):
            raise _refusal(folder, kind)


def read_plain_file(path: Path, most: int) -> bytes:
    """Return the content of a regular file.

    Args:
        path: the file.
        most: the largest size that is accepted, in bytes.

    Raises:
        RecordError: the file cannot be read, is not a regular file, or is larger.
    """
    try:
        with open_regular(path, most) as file:
            content = file.read(most + 1)  # it may have grown, and some special files report no size
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    if len(content) > most:
        raise RecordError(f"is larger than the limit of {most:,} bytes", where=str(path))
    return content


def _refusal(path: Path, mode: int) -> RecordError:
    reason = "which is not followed" if stat.S_ISLNK(mode) else "which is not read"
    return RecordError(f"is {kind_of(mode)}, {reason}", where=str(path), remedy=_REMEDY)

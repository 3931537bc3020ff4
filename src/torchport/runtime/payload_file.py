"""Finds and reads payloads in a safetensors file beside a package.

An island whose payload is elsewhere has the property `payload_in`: the file, and the payload's name in it. In
a package, the file must be a bare file name; it is searched for in the package's folder and then in
`TORCHPORT_WEIGHTS_DIR`, and nowhere else. TorchScript files are opened by torch, so their location is unknown
here: their weights are searched for under the path that they contain.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import numpy

from torchport.errors import RuntimeRefusal, TargetError
from torchport.records import open_regular
from torchport.targets.safetensors_file import read_row_of_bytes

PAYLOAD_IN = "payload_in"
MOST_REPEATED = 16  # a file's payloads may take at most this many times the file's size in total
Bytes = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]


@dataclass(frozen=True, slots=True)
class _Package:
    """A package being loaded: its folder, the payloads read so far, and the sizes handed out per file."""

    folder: Path
    read: dict[tuple[Path, str], Bytes] = field(default_factory=dict)
    taken: list[tuple[Path, int]] = field(default_factory=list)


_package: ContextVar[_Package | None] = ContextVar("_package", default=None)


@contextmanager
def payload_folder(folder: Path) -> Iterator[None]:
    """Search for payloads in a package's folder while it is being loaded."""
    token = _package.set(_Package(folder))
    try:
        yield
    finally:
        _package.reset(token)


def read_payload(entry: object, where: str) -> Bytes:
    """Return the payload that an island's properties point to.

    Args:
        entry: the property `payload_in`.
        where: the island's name.

    Raises:
        RuntimeRefusal: the file is missing, is not beside the package, or does not contain the payload.
    """
    file, name = (entry.get("file"), entry.get("name")) if isinstance(entry, Mapping) else (None, None)
    if not isinstance(file, str) or not isinstance(name, str):
        raise RuntimeRefusal("the island does not say where its payload is", where=where)
    package = _package.get()
    path = _find(file, where, package)
    if package is not None and (path, name) in package.read:
        _refuse_repeats(package, path, package.read[path, name].size, where)
        return package.read[path, name]
    try:
        with open_regular(path) as opened:
            found = read_row_of_bytes(opened, name)
    except (OSError, TargetError) as error:
        said = error.what if isinstance(error, TargetError) else error.strerror or error
        raise RuntimeRefusal(
            f"{path} cannot be read: {said}", where=where, remedy="get the file again"
        ) from error
    if package is not None:
        _refuse_repeats(package, path, found.size, where)
        package.read[path, name] = found
    return found


def _refuse_repeats(package: _Package, path: Path, size: int, where: str) -> None:
    """Refuse islands that repeat the same bytes too often: each island takes its own memory."""
    package.taken.append((path, size))
    if sum(taken for file, taken in package.taken if file == path) > MOST_REPEATED * path.stat().st_size:
        raise RuntimeRefusal("the islands' payloads are many times as large as the file", where=where)


def _find(name: str, where: str, package: _Package | None) -> Path:
    given = os.environ.get("TORCHPORT_WEIGHTS_DIR")
    if package is None:
        places = [Path(name)]
    elif _is_bare(name):
        places = [package.folder / name]
    else:
        raise RuntimeRefusal(
            f"the file with the weights, {name[:80]!r}, is not a file beside the package", where=where
        )
    if given:
        places.append(Path(given) / Path(name).name)
    for place in places:
        if place.is_file():
            if package is not None and place is places[0]:
                _refuse_link(place, where)
            return place
    raise RuntimeRefusal(
        f"the file with the weights, {name}, is missing",
        where=where,
        remedy="put it beside the package, or set TORCHPORT_WEIGHTS_DIR to its folder",
    )


def _is_bare(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & set("/\\:\0")


def _refuse_link(path: Path, where: str) -> None:
    if path.resolve().parent != path.parent.resolve():
        raise RuntimeRefusal(
            f"{path} is outside the package's folder",
            where=where,
            remedy="set TORCHPORT_WEIGHTS_DIR to the folder where the weights are",
        )

"""Payloads in a safetensors file beside a package: found, and read.

An island that has its payload elsewhere says so in its properties: `payload_in`, the file, and its own name
there. The file is looked for in the package's folder, as it is named, and in `TORCHPORT_WEIGHTS_DIR`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy
from safetensors import SafetensorError, safe_open

from torchport.errors import RuntimeRefusal

PAYLOAD_IN = "payload_in"
Bytes = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]

_folder: ContextVar[Path | None] = ContextVar("_folder", default=None)


@contextmanager
def looking_in(folder: Path) -> Iterator[None]:
    """Let files be looked for in a folder first."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def read_payload(entry: object, where: str) -> Bytes:
    """Return the payload that an island's properties point to.

    Args:
        entry: the property `payload_in`.
        where: the island's name.

    Raises:
        RuntimeRefusal: the file is not there, or has no such payload.
    """
    if not isinstance(entry, Mapping):
        raise RuntimeRefusal("the island does not say where its payload is", where=where)
    path = _find(str(entry["file"]), where)
    try:
        with safe_open(path, framework="numpy") as file:
            found: Bytes = file.get_tensor(str(entry["name"]))
    except (OSError, SafetensorError) as error:
        raise RuntimeRefusal(
            f"{path} cannot be read: {error}", where=where, remedy="get the file again"
        ) from error
    if found.dtype != numpy.uint8 or found.ndim != 1:
        raise RuntimeRefusal(f"{path} holds something else than a payload", where=where)
    return found


def _find(name: str, where: str) -> Path:
    given = os.environ.get("TORCHPORT_WEIGHTS_DIR")
    folder = _folder.get()
    places = [Path(name)]
    if folder is not None:
        places.insert(0, folder / Path(name).name)
    if given:
        places.append(Path(given) / Path(name).name)
    for place in places:
        if place.is_file():
            return place
    raise RuntimeRefusal(
        f"the file with the weights, {name}, is not there",
        where=where,
        remedy="put it beside the package, or set TORCHPORT_WEIGHTS_DIR to its folder",
    )

"""Keeps built islands on disk, so that nothing is built twice; safe against whatever else writes there.

An entry is one file: a line of JSON and the payload. It is written under another name and renamed, so
readers see all of it or nothing. Its digest is checked when it is read: a damaged entry is built anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path

import numpy
import torch
from torch import fx

from torchport.targets import Artifact, Island, Options, Target
from torchport.version import __version__

_log = logging.getLogger(__name__)

_MAGIC = "torchport-island-2"


def cache_directory() -> Path:
    """Return where entries are kept: `TORCHPORT_CACHE_DIR`, or `torchport` in the user's cache."""
    given = os.environ.get("TORCHPORT_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "torchport"


def cache_limit() -> int:
    """Return how many bytes entries may take in all: `TORCHPORT_CACHE_BYTES`, or 8 GiB."""
    try:
        return int(os.environ.get("TORCHPORT_CACHE_BYTES", ""))
    except ValueError:
        return 8 * 2**30


def island_key(island: Island, target: Target, options: Options) -> str:
    """Return a digest of all that a built island depends on.

    That is its topology, attributes, shapes, dtypes and weights, the options, and the versions of
    torch, torchport and the target's library.
    """
    digest = hashlib.sha256()
    settings = {
        key: value
        for key, value in target.options_json(options).items()
        if key not in ("cache", "check", "keep_ops", "keep_modules", "min_island_size")
    }
    head = [
        _MAGIC,
        __version__,
        torch.__version__,
        target.name,
        target.version(),
        target.build_format,
        settings,
    ]
    digest.update(json.dumps(head, sort_keys=True, default=str).encode())
    digest.update(repr((island.inputs, island.outputs)).encode())
    places = {node: index for index, node in enumerate(island.graph_module.graph.nodes)}
    for node in island.graph_module.graph.nodes:
        arguments = fx.map_arg((node.args, node.kwargs), lambda source: _Place(places[source]))  # type: ignore[arg-type, return-value]
        name = "" if node.op == "get_attr" else str(node.target) if node.op == "call_function" else node.op
        notes = node.meta.get("torchport_range") if node.op == "placeholder" else None
        digest.update(f"{node.op} {name} {arguments!r} {notes}\n".encode())
        if node.op == "get_attr":
            _add_tensor(digest, getattr(island.graph_module, str(node.target)))
    return digest.hexdigest()


class _Place:
    """A node in a key: its place, since names differ between captures of the same model."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __repr__(self) -> str:
        return f"%{self.place}"


def _add_tensor(digest: hashlib._Hash, tensor: torch.Tensor) -> None:
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.numel():
        digest.update(flat.view(torch.uint8).numpy().data)


def read(key: str) -> Artifact | None:
    """Return the entry of that key, or None if there is none that is whole."""
    path = _path(key)
    try:
        with path.open("rb") as file:
            head = json.loads(file.readline(2**20))
            payload = numpy.empty(head["bytes"], dtype=numpy.uint8)
            whole = file.readinto(payload.data) == head["bytes"]
        if head["magic"] != _MAGIC or not whole or _digest(payload, head["properties"]) != head["digest"]:
            raise ValueError("its checksum or length is another one")
        os.utime(path)  # the oldest use is evicted first
        return Artifact(payload, head["properties"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        _log.warning("the cache entry %s is not usable (%s) and is built anew", path, error)
        return None


def write(key: str, artifact: Artifact) -> None:
    """Keep an artefact; a disk that is full or read-only costs the entry, never the compilation."""
    path = _path(key)
    head = {
        "magic": _MAGIC,
        "bytes": int(artifact.payload.size),
        "digest": _digest(artifact.payload, artifact.properties),
        "properties": artifact.properties,
    }
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".writing-", delete=False) as file:
            temporary = file.name
            file.write(json.dumps(head).encode() + b"\n")
            file.write(artifact.payload.data)
        os.replace(temporary, path)
        _evict(path)
    except OSError as error:
        _log.warning("the built island is not kept in the cache: %s", error)
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _evict(newest: Path) -> None:
    """Remove the entries that were used longest ago until the rest fit the limit."""
    entries = []
    for path in newest.parent.parent.glob("*/*.island"):
        try:
            entries.append((path.stat().st_mtime, path.stat().st_size, path))
        except OSError:
            continue  # another process removed it
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= cache_limit():
            return
        if path != newest:
            path.unlink(missing_ok=True)
            total -= size


def _path(key: str) -> Path:
    return cache_directory() / key[:2] / f"{key}.island"


def _digest(
    payload: numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]], properties: dict[str, object]
) -> str:
    digest = hashlib.sha256(json.dumps(properties, sort_keys=True).encode())
    digest.update(payload.data)
    return digest.hexdigest()


def build_or_read(island: Island, target: Target, options: Options) -> Artifact:
    """Return the built island, from disk if it was built before."""
    if not options.cache:
        return target.build(island, options)
    key = island_key(island, target, options)
    found = read(key)
    if found is not None:
        return found
    artifact = target.build(island, options)
    write(key, artifact)
    return artifact

"""Caches built islands on disk, so that nothing is built twice; safe against other writers.

An entry is one file: a line of JSON and the payload, which is memory-mapped, so that the system can reclaim
the memory of weights. It is written under a temporary name and renamed atomically, so readers see all of it
or nothing. Its digest is checked on reading: a damaged entry is removed and rebuilt. Entries are private to
the user: files that others could have written are not read; see `user_directory.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import fx

from torchport.records import digest_of
from torchport.targets import Artifact, Island, Options, Target
from torchport.targets.mapped_payload import map_payload, release_pages
from torchport.targets.user_directory import (
    NotPrivate,
    cache_directory,
    make_private,
    need_private,
    open_private,
    warn_once,
)
from torchport.verification import tensor_bytes
from torchport.version import __version__

_log = logging.getLogger(__name__)

_MAGIC = "torchport-island-4"
_LONGEST_HEAD = 2**24
_PIECE = 1 << 26  # bytes compared at a time
_ALIGNMENT = 64  # payloads are aligned to it, as engines require of weights
_WRITING = ".writing-"
# Options that affect which islands are built, or how they are used, but not their contents.
_NOT_BUILT_IN = frozenset(
    "cache check speed_trial child_trial frozen keep_ops keep_modules min_island_size".split()
)
_ABANDONED = 3600  # seconds after which a temporary file counts as abandoned


def cache_limit() -> int:
    """Return the limit on the total size of all entries, in bytes: `TORCHPORT_CACHE_BYTES`, or 8 GiB."""
    try:
        return int(os.environ.get("TORCHPORT_CACHE_BYTES", ""))
    except ValueError:
        return 8 * 2**30


def island_key(island: Island, target: Target, options: Options) -> str:
    """Return a digest of everything that a built island depends on.

    That is its topology, attributes, shapes, dtypes and weights, the options, and the versions of torch,
    torchport and the target's library.
    """
    digest = hashlib.sha256()
    settings = {key: value for key, value in target.options_json(options).items() if key not in _NOT_BUILT_IN}
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
    if island.sizes is not None:
        digest.update(repr((island.sizes, sorted(island.sizes.largest.values()))).encode())
    places = {node: index for index, node in enumerate(island.graph_module.graph.nodes)}
    for node in island.graph_module.graph.nodes:
        place: Any = lambda source: _Place(places[source])  # noqa: E731  # not a node, as map_arg's types require
        arguments = fx.map_arg((node.args, node.kwargs), place)
        name = "" if node.op == "get_attr" else str(node.target) if node.op == "call_function" else node.op
        notes = node.meta.get("torchport_range") if node.op == "placeholder" else None
        device = getattr(node.meta.get("val"), "device", None)
        if device is not None and device.type not in ("cpu", "meta"):
            name = f"{name} on {device}"
        digest.update(f"{node.op} {name} {arguments!r} {notes}\n".encode())
        if node.op == "get_attr":
            _add_tensor(digest, getattr(island.graph_module, str(node.target)))
    return digest.hexdigest()


class _Place:
    """A node in a key: its index, since names differ between captures of the same model."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __repr__(self) -> str:
        return f"%{self.place}"


def _add_tensor(digest: hashlib._Hash, tensor: torch.Tensor) -> None:
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    if tensor.numel():
        digest.update(digest_of(tensor_bytes(tensor.cpu()).numpy().data).encode())


def read(key: str) -> Artifact | None:
    """Return the entry of a key, or None if there is none that is intact and private to the user."""
    path = _path(key)
    try:
        for directory in (path.parent.parent, path.parent):
            need_private(directory)
    except NotPrivate as reason:
        warn_once(cache_directory(), str(reason))
        return None
    except OSError:
        return None  # the cache does not exist yet
    try:
        return _read_entry(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, MemoryError, RecursionError) as error:
        _log.warning("the cache entry %s is not usable (%s) and is rebuilt", path, error)
        _remove(path)
        return None


def _read_entry(path: Path) -> Artifact:
    with open_private(path) as file:
        line = file.readline(_LONGEST_HEAD)
        head = json.loads(line)
        properties, size = head["properties"], os.fstat(file.fileno()).st_size - len(line)
        # Before memory is allocated: a damaged head may hold any number.
        if head["magic"] != _MAGIC or head["bytes"] != size or not isinstance(properties, dict):
            raise ValueError("its length or format does not match")
        payload = map_payload(file, len(line), size)
    artifact = Artifact(payload, properties, digest_of(payload.data))
    if _digest(artifact) != head["digest"]:
        raise ValueError("its checksum does not match")
    with contextlib.suppress(OSError):  # the cache may be read-only
        os.utime(path)  # the least recently used entry is evicted first
    return artifact


def remove(key: str) -> None:
    """Remove an entry that turned out to be bad."""
    _remove(_path(key))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def write(key: str, artifact: Artifact) -> None:
    """Store an artefact; a full or read-only disk loses the entry, and never fails the compilation."""
    path = _path(key)
    head = {
        "magic": _MAGIC,
        "bytes": int(artifact.payload.size),
        "digest": _digest(artifact),
        "properties": artifact.properties,
    }
    temporary = None
    try:
        make_private(path.parent.parent)
        make_private(path.parent)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_WRITING, delete=False) as file:
            temporary = file.name
            line = json.dumps(head).encode()
            file.write(line + b" " * (-(len(line) + 1) % _ALIGNMENT) + b"\n")
            file.write(artifact.payload.data)
        os.replace(temporary, path)
        _evict(path)
    except NotPrivate as reason:
        warn_once(cache_directory(), str(reason))
    except OSError as error:
        _log.warning("the built island is not kept in the cache: %s", error)
        if temporary is not None:
            _remove(Path(temporary))


def _evict(newest: Path) -> None:
    """Remove the least recently used entries until the rest fit the limit.

    Temporary files count too; those abandoned by a killed process are removed, those still being written are
    left alone.
    """
    entries = []
    folder = newest.parent.parent
    for path in (*folder.glob("*/*.island"), *folder.glob(f"*/{_WRITING}*")):
        try:
            found = path.lstat()
        except OSError:
            continue  # another process removed it
        unfinished = path.name.startswith(_WRITING)
        if unfinished and time.time() - found.st_mtime > _ABANDONED:
            _remove(path)
        else:
            entries.append((found.st_mtime, found.st_size, path, unfinished))
    total = sum(size for _, size, _, _ in entries)
    for _, size, path, unfinished in sorted(entries):
        if total <= cache_limit():
            return
        if path != newest and not unfinished:
            _remove(path)
            total -= size


def _path(key: str) -> Path:
    return cache_directory() / key[:2] / f"{key}.island"


def _digest(artifact: Artifact) -> str:
    digest = hashlib.sha256(json.dumps(artifact.properties, sort_keys=True).encode())
    digest.update((artifact.digest or digest_of(artifact.payload.data)).encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A built island.

    Args:
        artifact: the artefact, with its digest.
        key: its key in the cache; empty if it is not cached.
        found: whether it was a cache hit.
    """

    artifact: Artifact
    key: str = ""
    found: bool = False


def build_or_read(island: Island, target: Target, options: Options, *, anew: bool = False) -> Built:
    """Return the built island, from the cache if it was built before.

    Args:
        island, target, options: what to build.
        anew: whether to rebuild it and replace the entry, which turned out to be bad.
    """
    if not options.cache:
        return Built(_with_digest(target.build(island, options)))
    key = island_key(island, target, options)
    found = None if anew else read(key)
    if found is not None:
        return Built(found, key, found=True)
    if anew:
        remove(key)
    artifact = _with_digest(target.build(island, options))
    write(key, artifact)
    return Built(_mapped(key, artifact), key)


def _with_digest(artifact: Artifact) -> Artifact:
    """Return an artefact with its digest computed once: for gigabytes of weights it takes seconds."""
    return dataclasses.replace(artifact, digest=digest_of(artifact.payload.data))


def _mapped(key: str, artifact: Artifact) -> Artifact:
    """Return an artefact that was just stored with its payload mapped; unchanged if there is no entry."""
    try:
        with open_private(_path(key)) as file:
            line = file.readline(_LONGEST_HEAD)
            size = os.fstat(file.fileno()).st_size - len(line)
            payload = map_payload(file, len(line), size)
    except (OSError, ValueError, NotPrivate):
        return artifact
    for start in range(0, max(size, artifact.payload.size), _PIECE):
        piece = slice(start, start + _PIECE)
        if not numpy.array_equal(payload[piece], artifact.payload[piece]):
            return artifact
    release_pages(payload)
    return dataclasses.replace(artifact, payload=payload)

"""Moves islands' payloads out of a program into a safetensors file beside it."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import fx

from torchport.errors import PackageError
from torchport.packaging.embed_compiled import change_islands
from torchport.packaging.load_model import read_package
from torchport.packaging.package_file import package_file
from torchport.records import IslandMeta
from torchport.runtime.payload_file import PAYLOAD_IN
from torchport.targets.safetensors_file import write_safetensors


def move_payloads(
    graph_module: fx.GraphModule, islands: tuple[IslandMeta, ...], file: str, prefix: str = ""
) -> tuple[fx.GraphModule, tuple[IslandMeta, ...], dict[str, torch.Tensor]]:
    """Return a host graph whose islands refer to payloads in a file, their metadata, and the payloads.

    Args:
        graph_module: the host graph.
        islands: its islands' metadata.
        file: the name by which the islands refer to the payload file.
        prefix: a prefix for the payloads' names in that file.
    """
    payloads: dict[str, torch.Tensor] = {}

    def moved(name: str, payload: torch.Tensor, meta: IslandMeta) -> tuple[torch.Tensor, IslandMeta]:
        payloads[prefix + name] = payload
        entry = {"file": file, "name": prefix + name}
        changed = dataclasses.replace(meta, properties={**meta.properties, PAYLOAD_IN: entry})
        return torch.empty(0, dtype=torch.uint8), changed

    return *change_islands(graph_module, islands, moved), payloads


def new_file_beside(path: Path) -> Path:
    """Return an unused name beside a package: an old package keeps its file until the new one is complete."""
    return path.with_name(f"{path.stem}-{uuid.uuid4().hex[:8]}.safetensors")


@contextlib.contextmanager
def payloads_beside(path: Path, file: Path | None, payloads: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Write payloads before the package is written in the `with` body; then remove the old package's files.

    Args:
        path: the package.
        file: the payload file; None if payloads are stored in the package.
        payloads: the payloads by name.

    Raises:
        PackageError: the file cannot be written.
    """
    before = _files_of(path)
    if file is not None:
        write_payloads(payloads, file)
    try:
        yield
    except BaseException:
        if file is not None:
            file.unlink(missing_ok=True)
        raise
    for old in before:
        with contextlib.suppress(
            OSError
        ):  # the new package is complete: a file that cannot be removed only wastes space
            old.unlink()


def _files_of(path: Path) -> set[Path]:
    """Return the files beside a package that `payloads_beside` wrote for it."""
    try:
        package = read_package(path)
    except PackageError:
        return set()
    islands = [island for packaged in package.programs for island in packaged.record.islands]
    entries = [island.properties.get(PAYLOAD_IN) for island in islands]
    names = {str(entry.get("file")) for entry in entries if isinstance(entry, dict)}
    own = re.compile(re.escape(path.stem) + r"-[0-9a-f]{8}\.safetensors")
    return {path.with_name(name) for name in names if own.fullmatch(name)}


def write_payloads(payloads: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write payloads to a safetensors file, atomically and without copying them in memory.

    Raises:
        PackageError: the file cannot be written.
    """
    with package_file(path) as temporary:
        write_safetensors(payloads, temporary)

"""`torchport.load`: a `.pt2` file → a model that runs. Reads data; runs no code of the file's."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

import torch

from torchport.errors import PackageError, RecordError, TorchportError, one_line
from torchport.packaging.archive import PACKAGE, Archive, weight_files
from torchport.packaging.graph_json import decode_graph
from torchport.packaging.loaded_graph import LoadedGraph
from torchport.packaging.loaded_model import LoadedModel, LoadedProgram
from torchport.packaging.structure_json import decode_structure, dtype_of
from torchport.records import InputTensor, Package, PackagedGraph, PackagedProgram, StoredTensor, digest_of
from torchport.runtime.hook import register
from torchport.runtime.input_kind import InputKind, LeafKey
from torchport.runtime.island import load_island
from torchport.runtime.payload_file import looking_in
from torchport.runtime.program import Program


def load(path: str | os.PathLike[str], *, classes: Iterable[type] = ()) -> LoadedModel:
    """Load a compiled model from a file that `torchport.save` wrote.

    Nothing of the file is executed, and nothing in it is unpickled.

    Args:
        path: the file.
        classes: classes of inputs and results, beside containers and transformers' model outputs.

    Returns:
        A module that is called as the model was, with the kinds of inputs that the file has programs for.

    Raises:
        PackageError: the file cannot be read, is damaged, is of another version, or needs a target or
            class that is not here.

    Example:
        >>> model = load("relu.pt2")
        >>> model(torch.tensor([-1.0, 1.0])).tolist()
        [0.0, 1.0]
    """
    where = Path(path)
    try:
        with Archive(where) as archive, looking_in(where.parent):
            package = _package(archive)
            tensors = _Tensors(archive, package)
            programs = [_program(packaged, tensors, classes) for packaged in package.programs]
            graphs = [_graph(packaged, package, tensors, classes) for packaged in package.graphs]
        return LoadedModel(package, programs, graphs[0] if graphs else None)
    except PackageError as error:
        raise PackageError(error.what, where=error.where or str(where), remedy=error.remedy) from error
    except TorchportError as error:  # a target that is not here, a record of another version
        raise PackageError(one_line(error), where=str(where)) from error
    except Exception as error:  # what is not as `save` writes it breaks somewhere in between
        raise PackageError(
            f"is damaged: {one_line(error)}", where=str(where), remedy="get the file again"
        ) from error


def read_package(path: str | os.PathLike[str]) -> Package:
    """Return what a file holds, without its tensors, and without loading anything.

    Raises:
        PackageError: it cannot be read, or is no package.
    """
    with Archive(Path(path)) as archive:
        return _package(archive)


def _package(archive: Archive) -> Package:
    if archive.has("data.pkl"):
        raise PackageError(
            "the file is TorchScript, not a package of torchport.save",
            remedy="open it with torch.jit.load, or write the model to a .pt2 file",
        )
    if not archive.has(f"extra/{PACKAGE}"):
        raise PackageError(
            "the file was not written by torchport.save", remedy="torch.export.load may open it"
        )
    try:
        package = Package.from_json(archive.json(f"extra/{PACKAGE}"))
    except RecordError as error:
        raise PackageError(f"{error.where}: {error.what}", remedy=error.remedy) from error
    if not package.programs:
        raise PackageError("the package holds no program")
    return package


class _Tensors:
    """The tensors of a package, each read once.

    Args:
        archive: where their bytes are.
        package: what they are.
    """

    def __init__(self, archive: Archive, package: Package) -> None:
        self._archive = archive
        self._stored = package.tensors
        self._files: dict[str, dict[str, str]] = {}
        self._read: dict[str, torch.Tensor] = {}

    def read(self, key: str, *, check: bool) -> torch.Tensor:
        """Return a tensor; `check` holds it against its digest."""
        if key not in self._read:
            self._read[key] = self._tensor(key, self._stored[key], check)
        return self._read[key]

    def _tensor(self, key: str, stored: StoredTensor, check: bool) -> torch.Tensor:
        model, _, name = key.partition("/")
        if model not in self._files:
            self._files[model] = weight_files(self._archive, model)
        payload = self._archive.bytes(self._files[model][f"program.{name}"], check=False)
        if check and digest_of(payload.data) != stored.digest:
            raise PackageError(f"{key} is damaged: its checksum is another one", remedy="get the file again")
        return _restored(torch.from_numpy(payload), stored, key)


def _restored(payload: torch.Tensor, stored: StoredTensor, key: str) -> torch.Tensor:
    """Return the tensor that lies in these bytes."""
    dtype = dtype_of(stored.dtype)
    elements = math.prod(stored.shape)
    sizes = (*stored.shape, *stored.strides)
    if any(size < 0 for size in sizes) or len(stored.shape) != len(stored.strides):
        raise PackageError(f"{key} has the shape {stored.shape}, which is none")
    last = sum((size - 1) * stride for size, stride in zip(stored.shape, stored.strides, strict=True))
    if payload.numel() != elements * dtype.itemsize or (elements and last >= elements):
        raise PackageError(f"{key} has another size than its bytes")
    if not elements:
        return torch.empty(stored.shape, dtype=dtype)
    return payload.view(dtype).as_strided(stored.shape, stored.strides)


def _program(packaged: PackagedProgram, tensors: _Tensors, classes: Iterable[type]) -> LoadedProgram:
    register()  # where torch's own hook did not
    calls = packaged.graph["calls"]
    attributes = packaged.graph["attributes"]
    assert isinstance(calls, list)
    assert isinstance(attributes, dict)
    # The runtime itself holds an island's payload against its digest.
    payloads = {call["args"][0]["node"] for call in calls if call["op"] == "torchport.island.default"}
    unchecked = {attribute for node, attribute in attributes.items() if node in payloads}
    held = {name: tensors.read(key, check=name not in unchecked) for name, key in packaged.tensors.items()}
    kind = InputKind(
        decode_structure(packaged.inputs, classes),
        tuple(_leaf_key(leaf) for leaf in packaged.leaves),
        (packaged.autocast[0], dtype_of(packaged.autocast[1])),
    )
    result = decode_structure(packaged.result, classes)
    return LoadedProgram(Program(packaged.record, decode_graph(packaged.graph, held), result), kind)


def _graph(
    packaged: PackagedGraph, package: Package, tensors: _Tensors, classes: Iterable[type]
) -> LoadedGraph:
    result = packaged.island.properties["result"]
    assert isinstance(result, dict)
    payload = tensors.read(packaged.tensor, check=False)  # the runtime does
    island = load_island(payload, json.dumps(packaged.island.to_json(), sort_keys=True))
    return LoadedGraph(island, decode_structure(result, classes), package.programs[0].record)


def _leaf_key(leaf: InputTensor) -> LeafKey:
    return torch.Size(leaf.shape), dtype_of(leaf.dtype), torch.device(leaf.device), leaf.strides or None

"""`torchport.load`: a `.pt2` file → a model that runs. Reads data only; executes no code from the file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import fx

from torchport.errors import PackageError, RecordError
from torchport.packaging.archive import PACKAGE, Archive, path_of, reading
from torchport.packaging.loaded_graph import LoadedGraph
from torchport.packaging.loaded_model import LoadedModel, LoadedProgram
from torchport.packaging.stored_tensors import StoredTensors
from torchport.packaging.structure_json import decode_structure, dtype_of
from torchport.records import InputTensor, Package, PackagedGraph, PackagedProgram, ProgramRecord
from torchport.runtime.hook import register
from torchport.runtime.input_kind import InputKind, LeafKey
from torchport.runtime.island import load_island
from torchport.runtime.payload_file import payload_folder
from torchport.runtime.runnable_program import RunnableProgram
from torchport.targets.graph_json import decode_graph
from torchport.targets.machine import machine
from torchport.targets.permitted_ops import permitting

T = TypeVar("T")


def load(
    path: str | os.PathLike[str], *, classes: Iterable[type] = (), namespaces: Iterable[str] = ()
) -> LoadedModel:
    """Load a compiled model from a file that `torchport.save` wrote.

    Nothing in the file is executed or unpickled.

    Args:
        path: the file.
        classes: classes of inputs and results, in addition to containers and transformers' model outputs.
        namespaces: libraries other than torch whose ops the file may call, such as `torchvision`; import
            them first. Their ops must be safe with any arguments that the file passes them.

    Returns:
        A module that is called as the model was, with the kinds of inputs that the file has programs for.
        If the model generates, it also has `generate`, and `prefill` and `step`, which need no library but
        torch.

    Raises:
        PackageError: the file cannot be read, is damaged, is of another version, or needs a target or
            class that is not available.

    Example:
        >>> model = load("relu.pt2")
        >>> model(torch.tensor([-1.0, 1.0])).tolist()
        [0.0, 1.0]
    """
    where = path_of(path)
    classes, namespaces = _all_of(type, classes, "classes"), _all_of(str, namespaces, "namespaces")
    with reading(where), Archive(where) as archive, payload_folder(where.parent), permitting(namespaces):
        package = _package(archive)
        tensors = StoredTensors(archive, package)
        programs = [_program(packaged, tensors, classes) for packaged in package.programs]
        graphs = [_graph(packaged, package, tensors, classes) for packaged in package.graphs]
        graph = graphs[0] if graphs else None
        if package.generation is not None:
            from torchport.packaging.loaded_generation import LoadedGeneratingModel  # imports another stage

            return LoadedGeneratingModel(package, programs, graph, classes, str(where))
        return LoadedModel(package, programs, graph)


def _all_of(kind: type[T], given: Iterable[T], name: str) -> list[T]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise PackageError(f"{name} is no list: {given!r:.60}", remedy=f"as in {name}=[…]")
    items = list(given)
    for item in items:
        if not isinstance(item, kind):
            raise PackageError(f"{name} has {item!r:.60}, which is not a {kind.__name__}")
    return items


def read_package(path: str | os.PathLike[str]) -> Package:
    """Read a file's description of its contents, without reading tensors or loading programs.

    Raises:
        PackageError: the file cannot be read, or is not a package.
    """
    with Archive(path_of(path)) as archive:
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
        raise PackageError("the package contains no program")
    return package


def _program(packaged: PackagedProgram, tensors: StoredTensors, classes: Iterable[type]) -> LoadedProgram:
    register()  # if torch's entry point has not done so
    kind = InputKind(
        decode_structure(packaged.inputs, classes),
        tuple(_leaf_key(leaf) for leaf in packaged.leaves),
        (packaged.autocast[0], dtype_of(packaged.autocast[1])),
        packaged.guards,
    )
    result = decode_structure(packaged.result, classes)
    held = {name: tensors.read(key) for name, key in packaged.tensors.items()}
    graph_module = decode_graph(packaged.graph, held, of_host=True)
    if len(graph_module.graph.output_node().args[0]) < len(result.paths):  # type: ignore[arg-type]  # a tuple
        raise PackageError("the program returns fewer tensors than its result has")
    _check_tensors(graph_module, packaged, tensors)
    program = RunnableProgram(packaged.record, graph_module, result, kind)
    _drop_payloads(graph_module)
    return LoadedProgram(program, kind)


def _drop_payloads(graph_module: fx.GraphModule) -> None:
    """Free the payloads, which nothing reads once the islands are loaded."""
    for node in graph_module.graph.nodes:
        readers = [
            user.target is torch.ops.torchport.island.default and user.args[0] is node for user in node.users
        ]
        if node.op == "get_attr" and readers and all(readers):
            setattr(graph_module, node.target, torch.empty(0, dtype=torch.uint8))


def _check_tensors(graph_module: fx.GraphModule, packaged: PackagedProgram, tensors: StoredTensors) -> None:
    """Refuse tensors that are damaged, repeated, or mutated without being named in the record."""
    attributes = [node for node in graph_module.graph.nodes if node.op == "get_attr"]
    names = packaged.graph["tensors"]
    for node, name in zip(attributes, names, strict=True):  # type: ignore[call-overload]  # `decode_graph` made them
        islands = [
            user
            for user in node.users
            if user.target is torch.ops.torchport.island.default and user.args[0] is node
        ]
        for island in islands:
            payload = getattr(graph_module, node.target)
            tensors.count_payload(packaged.tensors[name], island.args[1], payload.nbytes)
        if len(islands) < len(node.users):  # the runtime checks payloads itself
            tensors.check(packaged.tensors[name])
        if any(user.target is torch.ops.aten.copy_.default and user.args[0] is node for user in node.users):
            tensors.check_alone(packaged.tensors[name])
    _check_writes(graph_module, packaged.record)


def _check_writes(graph_module: fx.GraphModule, record: ProgramRecord) -> None:
    """Refuse writes to an input that the record does not name, or to more buffers than it names."""
    nodes = graph_module.graph.nodes
    written = {node.args[0] for node in nodes if node.target is torch.ops.aten.copy_.default}
    inputs = [node for node in nodes if node.op == "placeholder"]
    paths = dict(zip(inputs, record.inputs, strict=False))  # a graph may have more inputs than it declares
    named = {paths.get(node, "") for node in written.intersection(inputs)}
    buffers = set(record.mutated) - set(paths.values())
    if not named <= set(record.mutated) or len(written.difference(inputs)) > len(buffers):
        raise PackageError("the program mutates inputs or buffers that its record does not name")


def _graph(
    packaged: PackagedGraph, package: Package, tensors: StoredTensors, classes: Iterable[type]
) -> LoadedGraph:
    payload = tensors.read(packaged.tensor)  # the runtime checks its digest
    meta = packaged.island.to_text()
    tensors.count_payload(packaged.tensor, meta, payload.nbytes)
    result = decode_structure(packaged.island.properties.get("result"), classes)
    tries = package.tries
    objective = tries.objective if tries is not None and tries.machine != machine() else ""
    return LoadedGraph(load_island(payload, meta), result, package.programs[0].record, objective)


def _leaf_key(leaf: InputTensor) -> LeafKey:
    return torch.Size(leaf.shape), dtype_of(leaf.dtype), torch.device(leaf.device), leaf.strides or None

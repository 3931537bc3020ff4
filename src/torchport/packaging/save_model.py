"""`torchport.save`: a compiled model → a `.pt2` file that `torch.export.load` opens too."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import fx, nn
from torch.export import ExportedProgram

from torchport import targets
from torchport.capture import ANY_SHAPE, quiet_torch
from torchport.capture.suppressed_output import WARNINGS
from torchport.compiler import CompiledModel
from torchport.compiler.generating_model import GeneratingModel
from torchport.compiler.specialise import Specialised
from torchport.errors import PackageError, TargetError, one_line
from torchport.packaging.archive import PACKAGE, path_of
from torchport.packaging.dynamic_graph import make_general
from torchport.packaging.embed_compiled import embed_compiled
from torchport.packaging.graph_tensors import graph_tensors
from torchport.packaging.package_file import package_file
from torchport.packaging.packaged_generation import generation_calls, package_generation
from torchport.packaging.separate_weights import move_payloads, new_file_beside, payloads_beside
from torchport.packaging.shared_weights import SharedWeights, payload_metas
from torchport.packaging.structure_json import encode_structure
from torchport.packaging.torchscript import plain_result
from torchport.records import (
    InputTensor,
    IslandMeta,
    Package,
    PackagedGraph,
    PackagedProgram,
    StoredTensor,
    digest_of,
)
from torchport.records.deferred_error_file import written_by_torch
from torchport.records.quantization import QuantizationPlan
from torchport.runtime.input_kind import LeafKey
from torchport.structure import Structure, flatten_call
from torchport.structure.nodes import Constant, Dict, InputLeaf, Leaf, List, Node, Tuple
from torchport.targets.graph_json import encode_graph
from torchport.targets.permitted_ops import namespaces_of, permitting
from torchport.torch_private import package_pt2
from torchport.verification import tensor_bytes


def save(
    compiled: CompiledModel,
    path: str | os.PathLike[str],
    *,
    compiled_form: bool = True,
    with_graph: bool = False,
    separate_weights: bool = False,
) -> None:
    """Write a compiled model to a file, atomically.

    The file contains the programs for all kinds of inputs that the model has been compiled for so far, with
    all weights. For a model that generates, it contains what `generate` has compiled; if nothing has been
    compiled yet, that is done now. The file can be loaded without the model's code: by `torchport.load`, and
    by `torch.export.load`, which sees the first program, the one for the example inputs.

    Args:
        compiled: what `torchport.compile` returned.
        path: the file to write; its name ends in `.pt2`.
        compiled_form: whether to store the device's own compiled form beside the portable one. With it,
            loading compiles nothing on a device like this one. Where it has to include the weights again,
            the file is up to twice as large.
        with_graph: whether to store the model's own graph too, with another copy of its weights. The loaded
            model then takes inputs of other shapes, and values that an island was not built for.
        separate_weights: whether to write the islands, with their weights, to a safetensors file beside the
            package, which refers to it.

    Raises:
        PackageError: the model contains something that cannot be stored as data, or the file cannot be
            written.
        TargetError: the model was compiled with an option that a file may not request.

    Example:
        >>> compiled = torchport.compile(torch.nn.ReLU(), (torch.ones(2),), target="host")
        >>> save(compiled, "relu.pt2")
    """
    if not isinstance(compiled, CompiledModel):
        raise PackageError(
            f"a {type(compiled).__name__} is not a compiled model",
            remedy="compile it first: torchport.compile",
        )
    where = path_of(path)
    check_package_name(where)
    compiled.prove_sizes_of_one()
    calls = generation_calls(compiled) if isinstance(compiled, GeneratingModel) else []
    programs = compiled.built_programs if calls and not with_graph else compiled.current_programs
    if not programs and not calls:
        raise PackageError(
            "a weight changed after the model was compiled",
            where=compiled.record.model,
            remedy="call the model once to compile it again, then save it",
        )
    together = [*programs, *(program for call in calls for program in call)]
    for specialised in together:  # fail now if `load` would refuse the options
        record = specialised.program.record
        targets.find(record.target).options_from_file(record.options)
    beside = new_file_beside(where) if separate_weights else None
    writer = _Writer(compiled_form, beside)
    packaged = tuple(writer.add(specialised) for specialised in together)
    first = together[0].program.record
    graphs = (writer.add_graph(compiled.original, programs[0]),) if with_graph else ()
    plan = getattr(compiled.original, "plan", None)  # a quantized model has one
    generation = None
    if isinstance(compiled, GeneratingModel) and calls:
        generation = package_generation(compiled, calls, len(programs))
    package = Package(
        first.model,
        first.target,
        packaged,
        graphs,
        writer.tensors,
        first.versions,
        compiled.tries,
        plan if isinstance(plan, QuantizationPlan) else None,
        generation,
    )
    text = json.dumps(package.to_json(), ensure_ascii=False, allow_nan=False)
    # Names, like file names, may contain lone surrogates, which UTF-8 cannot encode.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    with (
        payloads_beside(where, beside, writer.payloads),
        package_file(where) as temporary,
        written_by_torch(temporary) as file,
        WARNINGS.held_back(),  # about non-contiguous weights, which are intended
    ):
        package_pt2(file, exported_programs=writer.exported, extra_files={PACKAGE: text})  # type: ignore[arg-type]  # IO is abstract


def check_package_name(path: Path) -> None:
    """Refuse a file name that is not a package's.

    Raises:
        PackageError: the name does not end in `.pt2`.
    """
    if path.suffix != ".pt2":
        raise PackageError(
            "a package's file name must end in .pt2", where=str(path), remedy=f"call it {path.stem}.pt2"
        )


class _Writer:
    """Collects the archive's contents: exported programs by name, and their tensors.

    Args:
        compiled_form: whether to embed the device's own compiled form in the islands.
        beside: the separate file for payloads; None to store them in the archive.
    """

    def __init__(self, compiled_form: bool, beside: Path | None) -> None:
        self._compiled_form = compiled_form
        self._beside = beside
        self.payloads: dict[str, torch.Tensor] = {}
        self.exported: dict[str, ExportedProgram] = {}
        self.tensors: dict[str, StoredTensor] = {}
        self._names: dict[int, str] = {}
        self._shared = SharedWeights()
        self._kept: list[fx.GraphModule] = []  # keeps tensors alive, whose ids are keys in `_names`

    def add(self, specialised: Specialised) -> PackagedProgram:
        """Add a program."""
        program, kind = specialised.program, specialised.kind
        model = f"model_{len(self.exported)}" if self.exported else "model"
        graph_module, islands = program.graph_module, program.record.islands
        if self._compiled_form:
            graph_module, islands = embed_compiled(program)
        if self._beside is not None:
            graph_module, islands, payloads = move_payloads(
                graph_module, islands, self._beside.name, f"{model}/"
            )
            self.payloads.update(payloads)
        record = dataclasses.replace(program.record, islands=islands)
        self._kept.append(graph_module)
        attributes = graph_tensors(graph_module, program.record.model)
        _refuse_shared_writes(program.record.mutated, attributes, program.record.model)
        own = {name: _own_memory(tensor) for name, tensor in attributes.items()}
        if self._beside is None:
            for name, meta in payload_metas(graph_module).items():
                own[name] = self._share(model, name, attributes[name], own[name], meta)
        packaged = PackagedProgram(
            record=record,
            graph=_graph_json(graph_module.graph, program.record.model),
            inputs=encode_structure(kind.structure),
            result=encode_structure(program.result),
            leaves=tuple(_input_tensor(key) for key in kind.keys),
            autocast=(kind.autocast[0], str(kind.autocast[1]).removeprefix("torch.")),
            tensors={
                name: self._store(model, name, tensor, own[name]) for name, tensor in attributes.items()
            },
            guards=kind.guards,
        )
        self.exported[model] = _export(specialised, fx.GraphModule(own, graph_module.graph))
        return packaged

    def _share(
        self, model: str, name: str, tensor: torch.Tensor, own: torch.Tensor, meta: IslandMeta
    ) -> torch.Tensor:
        """Return the part of a payload to write: all but the weights that earlier payloads contain.

        The first program's payloads are written in full, since `torch.export.load` does not reassemble them.
        """
        if id(tensor) in self._names:
            return own
        key = f"{model}/{name}"
        rest, parts = self._shared.add(key, own, meta, whole=not self.exported)
        if parts:
            self._names[id(tensor)] = key
            self.tensors[key] = StoredTensor(tuple(own.shape), "uint8", own.stride(), meta.digest, parts)
        return rest

    def add_graph(self, model: nn.Module, specialised: Specialised) -> PackagedGraph:
        """Add the model's own graph: for all shapes that it supports, or else for the program's."""
        call = specialised.kind.structure.rebuild(specialised.examples)
        assert isinstance(call, tuple)  # the structure of (args, kwargs)
        name = specialised.program.record.model
        try:
            payload, meta = make_general(model, *call, dynamic_shapes=ANY_SHAPE, name=name)
        except PackageError:  # it supports no other shapes, but may still support other values
            payload, meta = make_general(model, *call, dynamic_shapes=None, name=name)
        with quiet_torch(), torch.no_grad():
            self.exported["graph"] = torch.export.export(_Holder(payload), (), strict=False)
        return PackagedGraph(meta, self._store("graph", "payload", payload, payload))

    def _store(self, model: str, name: str, tensor: torch.Tensor, own: torch.Tensor) -> str:
        """Return a tensor's name in the package, given by the first program that has it."""
        key = self._names.setdefault(id(tensor), f"{model}/{name}")
        if key not in self.tensors:
            self.tensors[key] = StoredTensor(
                tuple(own.shape), str(own.dtype).removeprefix("torch."), own.stride(), _digest(own)
            )
        return key


def _graph_json(graph: fx.Graph, model: str) -> dict[str, object]:
    try:
        with permitting(namespaces_of(graph)):  # to be named in `load(namespaces=...)`
            return encode_graph(graph, of_host=True)
    except TargetError as error:
        raise PackageError(
            f"the host graph has an op that a file may not call: {error.what}",
            where=error.where or model,
            remedy="write the model as TorchScript: torchport.trace(model, inputs).save('model.pt')",
        ) from error


def _refuse_shared_writes(mutated: Sequence[str], attributes: Mapping[str, torch.Tensor], model: str) -> None:
    """Refuse aliasing tensors if the program mutates any: a file stores each with its own memory."""
    storages = [tensor.untyped_storage().data_ptr() for tensor in attributes.values() if tensor.numel()]
    if mutated and len(set(storages)) < len(storages):
        raise PackageError(
            "buffers share memory, and one of them is mutated",
            where=model,
            remedy="give each buffer its own memory, with .clone()",
        )


def _own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that owns exactly its memory: a clone if it is a view, else itself."""
    if tensor.layout is not torch.strided or type(tensor.detach()) is not torch.Tensor:
        raise PackageError(f"a weight of layout {tensor.layout} or of a tensor subclass cannot be stored")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size():
        return tensor
    return tensor.clone()


def _digest(tensor: torch.Tensor) -> str:
    in_memory_order = tensor.as_strided((tensor.numel(),), (1,))  # as the archive stores it
    return digest_of(tensor_bytes(in_memory_order).numpy().data if tensor.numel() else memoryview(b""))


def _input_tensor(key: LeafKey) -> InputTensor:
    shape, dtype, device, strides = key
    return InputTensor(tuple(shape), str(dtype).removeprefix("torch."), str(device), strides or ())


def _export(specialised: Specialised, graph_module: fx.GraphModule) -> ExportedProgram:
    """Return the program as an `ExportedProgram`, called as the model is if pytrees flatten its inputs."""
    kind, result = specialised.kind, specialised.program.result
    # Open sizes are fixed to the examples' in the exported program.
    shapes = [leaf.shape for leaf in specialised.examples] if kind.guards else [key[0] for key in kind.keys]
    leaves = [_example((shape, *key[1:])) for shape, key in zip(shapes, kind.keys, strict=True)]
    whole = _is_plain(kind.structure) and not result.changed
    call = kind.structure.rebuild(leaves) if whole else (tuple(leaves), {})
    assert isinstance(call, tuple)  # the structure of (args, kwargs)
    try:
        with quiet_torch(), torch.no_grad():
            exported = torch.export.export(
                _Caller(graph_module, result if whole else None), *call, strict=False
            )
    except Exception as error:  # torch.export raises many kinds; each is a refusal
        raise PackageError(
            f"torch.export rejects the host graph: {one_line(error)}",
            where=specialised.program.record.model,
        ) from error
    exported.example_inputs = None  # they would be pickled into the file
    return exported


def _example(key: LeafKey) -> torch.Tensor:
    shape, dtype, device, strides = key
    if strides is None:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.empty_strided(shape, strides, dtype=dtype, device=device).zero_()


class _Holder(nn.Module):
    """Holds a payload in an archive, which stores only tensors of exported programs."""

    def __init__(self, payload: torch.Tensor) -> None:
        super().__init__()
        self.program = nn.Module()
        self.program.register_buffer("payload", payload)

    def forward(self) -> torch.Tensor:
        """Return an empty slice of the payload."""
        payload = self.program.payload
        assert isinstance(payload, torch.Tensor)
        return payload.narrow(0, 0, 0).clone()


class _Caller(nn.Module):
    """The host graph, called as the model is; without a result structure, from tensors to tensors."""

    def __init__(self, program: fx.GraphModule, result: Structure | None) -> None:
        super().__init__()
        self.program = program
        self._result = result

    def forward(self, *args: object, **kwargs: object) -> object:
        """Flatten the inputs, run the graph, rebuild the result."""
        if self._result is None:
            return self.program(*args)
        flat = flatten_call(args, kwargs)
        outputs = self.program(*flat.leaves)
        value = self._result.rebuild(outputs, flat.leaves, flat.objects)
        if _is_plain(self._result):
            return value
        try:
            return plain_result(value)
        except PackageError:  # a class that pytrees do not know
            return outputs


def _is_plain(structure: Structure) -> bool:
    """Whether torch's pytrees flatten a value as we do: containers of tensors and plain values."""
    stack: list[Node] = [structure.root]
    leaves = 0
    while stack:
        node = stack.pop()
        if isinstance(node, Leaf):
            leaves += 1
        elif isinstance(node, (Tuple, List, Dict)):
            stack.extend(node.items)
            if isinstance(node, Dict) and not all(isinstance(key, str) for key in node.keys):
                return False
        elif not (isinstance(node, InputLeaf) or (isinstance(node, Constant) and _is_simple(node.value))):
            return False
    return leaves == len(structure.paths)


def _is_simple(value: object) -> bool:
    return value is None or type(value) in (bool, int, float, str)

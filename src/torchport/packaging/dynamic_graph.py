"""A model's own graph for inputs of any shape, in a package: a host island with guards on sizes.

It handles what the package's other islands cannot: other shapes, and values that they were not built for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind

from torchport import capture, targets
from torchport.capture import (
    ANY_BATCH,
    ANY_SHAPE,
    CapturedModel,
    guards_of,
    input_shapes,
    quiet_torch,
    same_calls,
)
from torchport.compiler.build import versions
from torchport.errors import CaptureError, PackageError, RuntimeRefusal, TargetError
from torchport.packaging.structure_json import encode_structure
from torchport.records import IslandMeta, TensorSpec, digest_of
from torchport.runtime.shape_guards import check_guards
from torchport.structure import flatten_call
from torchport.targets import Island
from torchport.targets.open_sizes import GUARDS
from torchport.targets.permitted_ops import namespaces_of, permitting

Call = tuple[Sequence[object], Mapping[str, object]]


def make_general(
    model: nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    dynamic_shapes: object,
    name: str,
) -> tuple[torch.Tensor, IslandMeta]:
    """Capture a model for inputs of any shape.

    Args:
        model: the module.
        args, kwargs: example inputs.
        dynamic_shapes: which dimensions may vary, in the form that `torchport.capture.export` takes.
        name: the model's name.

    Returns:
        The payload of an island of the target `host`, and its metadata.

    Raises:
        PackageError: the model cannot be captured with these dynamic shapes, or its graph not serialized.
    """
    try:
        captured = _capture(model, args, kwargs, dynamic_shapes, name)
        graph_module = _graph_of(captured.program)
        result = encode_structure(captured.result)
        guards = guards_of(captured.program)
        inputs = _inputs_of(captured.program, captured.leaves, guards)
        examples = flatten_call(tuple(args), dict(kwargs)).leaves
        if _needs_proof(guards, examples):
            static = capture.export(model, args, kwargs, name=name)
            if same_calls(captured.program, static.program, examples):
                guards = [["or", _all_equal(examples), ["and", *guards]]]
        if dynamic_shapes is not None and not any(-1 in spec.shape for spec in inputs):
            raise PackageError("the model does not allow any of its input sizes to vary")
        host = targets.find("host")
        with permitting(namespaces_of(graph_module.graph)):  # to be named in `load(namespaces=...)`
            artifact = host.build(Island("general", graph_module, inputs, ()), host.make_options({}))
    except (CaptureError, TargetError, PackageError) as error:
        raise PackageError(
            f"the model's graph cannot be kept for other shapes: {error.what}",
            where=error.where or name,
            remedy=error.remedy or "compile it for each shape, and save it without the graph",
        ) from error
    meta = IslandMeta(
        name="general",
        target="host",
        digest=digest_of(artifact.payload.data),
        inputs=inputs,
        outputs=(),
        options=host.options_json(host.make_options({})),
        properties={**artifact.properties, GUARDS: guards, "result": result},
        versions=versions(host),
    )
    return torch.from_numpy(artifact.payload), meta


def _capture(
    model: nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    dynamic_shapes: object,
    name: str,
) -> CapturedModel:
    """Capture a model, with a batch of two in place of one: torch specializes sizes of one."""
    if dynamic_shapes in (ANY_BATCH, ANY_SHAPE):
        with contextlib.suppress(CaptureError):  # not every dimension of size one is a batch
            return capture.export(model, *_grown(args, kwargs), name=name, dynamic_shapes=dynamic_shapes)
    return capture.export(model, args, kwargs, name=name, dynamic_shapes=dynamic_shapes)


def _grown(args: Sequence[object], kwargs: Mapping[str, object]) -> Call:
    flat = flatten_call(tuple(args), dict(kwargs))
    single = [leaf.dim() > 0 and leaf.shape[0] == 1 for leaf in flat.leaves]
    grown = [torch.cat([leaf, leaf]) if one else leaf for leaf, one in zip(flat.leaves, single, strict=True)]
    call = flat.structure.rebuild(grown)
    assert isinstance(call, tuple)  # the structure of (args, kwargs)
    return call


def _graph_of(program: ExportedProgram) -> fx.GraphModule:
    """Return the graph from tensors to tensors, with the weights as its attributes."""
    with quiet_torch():  # functionalizes: the signature then lists what the graph mutates
        program = program.run_decompositions({})
    if any(spec.kind is not OutputKind.USER_OUTPUT for spec in program.graph_signature.output_specs):
        raise PackageError("it writes to buffers or inputs")
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    attributes: dict[str, torch.Tensor] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and specs[node.name].kind is not InputKind.USER_INPUT:
            if not node.users:
                continue
            attributes[node.name] = _weight(program, specs[node.name])
            copies[node] = graph.create_node("get_attr", node.name, name=node.name)
        elif node.op == "get_attr":
            raise PackageError(f"its graph holds {node.target}, a graph of its own")
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(attributes, graph)


def _weight(program: ExportedProgram, spec: InputSpec) -> torch.Tensor:
    found = program.state_dict.get(str(spec.target), program.constants.get(str(spec.target)))
    if not isinstance(found, torch.Tensor):
        raise PackageError(f"its graph takes {spec.target}, which is not a tensor")
    return found


def _needs_proof(guards: Sequence[object], examples: Sequence[torch.Tensor]) -> bool:
    """Whether the graph's guards reject the examples, as they do if the batch size is one."""
    try:
        check_guards(guards, [leaf.shape for leaf in examples], "")
    except RuntimeRefusal:
        return True
    return False


def _all_equal(examples: Sequence[torch.Tensor]) -> list[object]:
    """Return a guard that accepts exactly the examples' shapes."""
    return [
        "and",
        *[
            ["==", ["size", index, dim], size]
            for index, leaf in enumerate(examples)
            for dim, size in enumerate(leaf.shape)
        ],
    ]


def _inputs_of(
    program: ExportedProgram, leaves: Sequence[torch.Tensor], guards: Sequence[object]
) -> tuple[TensorSpec, ...]:
    """Return the specs of the graph's inputs; a size that may vary is -1."""
    return tuple(
        TensorSpec(
            tuple(
                -1 if _varies(size, ["size", index, dim], guards) else leaf.shape[dim]
                for dim, size in enumerate(shape)
            ),
            str(leaf.dtype).removeprefix("torch."),
        )
        for index, (shape, leaf) in enumerate(zip(input_shapes(program), leaves, strict=True))
    )


def _varies(size: object, place: object, guards: Sequence[object]) -> bool:
    fixed = (guard for guard in guards if isinstance(guard, list) and guard[0] == "==" and place in guard)
    return not isinstance(size, int) and not any(isinstance(term, int) for guard in fixed for term in guard)

"""A compiled program → TorchScript: the host graph, traced, with each island as one call of the island op."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import fx, nn

from torchport.capture import quiet_torch, values_kept
from torchport.compiler.specialise import Specialised
from torchport.errors import PackageError, one_line
from torchport.packaging.embed_compiled import embed_compiled
from torchport.packaging.graph_tensors import graph_tensors
from torchport.packaging.separate_weights import move_payloads, write_payloads
from torchport.packaging.structure_json import encode_structure
from torchport.records import IslandMeta, TensorSpec
from torchport.runtime.input_kind import LeafKey
from torchport.runtime.island import alias_island
from torchport.structure import flatten_call
from torchport.targets.node_by_node import NodeByNode
from torchport.torch_private import add_script_attribute
from torchport.verification.copied_tensors import copy_tensors

REPORT = "torchport_report"
General = tuple[torch.Tensor, IslandMeta]
Script = torch.jit.ScriptModule | torch.jit.ScriptFunction  # type: ignore[type-arg]  # generic only in the stubs


def to_torchscript(
    specialised: Specialised,
    signature: inspect.Signature,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    as_function: bool,
    compiled_form: bool = True,
    general: General | None = None,
    separate_weights: Path | None = None,
) -> Script:
    """Return a program as TorchScript.

    Args:
        specialised: the program.
        signature: the model's signature, whose parameter names are kept.
        args, kwargs: example inputs, of the kind that the program was compiled for.
        as_function: whether to return a `ScriptFunction` rather than a `ScriptModule`.
        compiled_form: whether to embed the device's own compiled form beside the portable one.
        general: the model's own graph, for inputs of other shapes; without it, they are refused.
        separate_weights: a file to write the islands' payloads to, rather than into the TorchScript.

    Raises:
        PackageError: TorchScript cannot represent its inputs or results.
    """
    program = specialised.program
    graph_module, islands = program.graph_module, program.record.islands
    if compiled_form:
        graph_module, islands = embed_compiled(program)
    if separate_weights is not None:
        graph_module, islands, payloads = move_payloads(graph_module, islands, str(separate_weights))
        write_payloads(payloads, separate_weights)
    for island in islands:  # tracing runs the program, whose islands are loaded already
        for loaded in program.islands.values():
            if loaded.meta.name == island.name:
                alias_island(island.to_text(), loaded)
    record = dataclasses.replace(program.record, islands=islands)
    names = _names(signature, len(args), kwargs)
    own = _own_tensors(graph_module, record.model)
    body = fx.GraphModule(own, graph_module.graph)
    args, kwargs = copy_tensors((tuple(args), dict(kwargs)))  # type: ignore[misc]  # a program may mutate its inputs
    by_name = dict(zip(names, (*args, *kwargs.values()), strict=True)) if kwargs else None
    try:
        # Tracing runs the program once, which may mutate its buffers.
        buffers = [tensor for tensor in own.values() if tensor.dtype is not torch.uint8]
        with values_kept(buffers), quiet_torch(), torch.no_grad():
            caller = _Caller(specialised, body, names, len(args), general)
            traced: Callable[..., object] = caller.forward if as_function else caller
            script: Script = torch.jit.trace(
                traced,
                None if by_name else tuple(args),
                example_kwarg_inputs=by_name,
                strict=False,
                check_trace=False,
            )
    except PackageError:
        raise
    except Exception as error:  # TorchScript raises many kinds; each is a refusal
        raise PackageError(
            f"the model cannot be converted to TorchScript: {one_line(error)}",
            where=record.model,
            remedy="torchport.save(compiled, 'model.pt2') supports inputs and results of any structure",
        ) from error
    report = json.dumps(record.to_json())
    if isinstance(script, torch.jit.ScriptModule):
        add_script_attribute(script, REPORT, report)
    else:  # a function has no attributes that would be saved
        setattr(script, REPORT, report)
    return script


def _names(signature: inspect.Signature, positional: int, kwargs: Mapping[str, object]) -> list[str]:
    """Return a name for each input: its parameter's name, if it has one."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [name for name, parameter in signature.parameters.items() if parameter.kind in kinds]
    names = named[:positional] + [f"input_{index}" for index in range(len(named), positional)]
    return [*names, *kwargs]


def _own_tensors(graph_module: fx.GraphModule, model: str) -> dict[str, torch.Tensor]:
    """Return the graph's tensors: payloads themselves, clones of the others."""
    return {
        name: tensor.detach() if tensor.dtype is torch.uint8 else tensor.detach().clone()
        for name, tensor in graph_tensors(graph_module, model).items()
    }


class _Caller(nn.Module):
    """The host graph, called as the model is, on inputs of the shapes that it was compiled for."""

    def __init__(
        self,
        specialised: Specialised,
        program: fx.GraphModule,
        names: Sequence[str],
        positional: int,
        general: General | None,
    ) -> None:
        super().__init__()
        result, kind = specialised.program.result, specialised.kind
        run = self._exact(program) if general is None else self._choice(specialised, program, general)
        paths = [_readable(path, names) for path in kind.structure.paths]
        check = _scripted_check()
        signature = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        )

        def forward(*given: object, **named: object) -> object:
            values = signature.bind(*given, **named).arguments
            ordered = [values[name] for name in names]
            flat = flatten_call(
                tuple(ordered[:positional]), dict(zip(names[positional:], ordered[positional:], strict=True))
            )
            leaves = [
                check(leaf, list(key[0]) if general is None else [-1], key[1], path, _kind(key))
                for leaf, key, path in zip(flat.leaves, kind.keys, paths, strict=True)
            ]
            return plain_result(result.rebuild(run(leaves), flat.leaves, flat.objects))

        forward.__signature__ = signature  # type: ignore[attr-defined]  # TorchScript reads names from it
        self.forward = forward

    def _exact(self, program: fx.GraphModule) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
        """Return the host graph as a function; its tensors become this module's own buffers."""
        for name, tensor in program.named_buffers():
            self.register_buffer(name, tensor)
        return lambda leaves: NodeByNode(self, graph=program.graph).run(*leaves)

    def _choice(
        self, specialised: Specialised, program: fx.GraphModule, general: General
    ) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
        """Return a function that runs the host graph for its shapes, and the general graph for others."""
        if encode_structure(specialised.program.result) != general[1].properties["result"]:
            raise PackageError(
                "the structure of its result depends on shapes", where=specialised.program.record.model
            )
        examples = copy_tensors(list(specialised.examples))
        exact = torch.jit.trace(
            lambda leaves: list(program(*leaves)), (examples,), strict=False, check_trace=False
        )
        choose, meta = _scripted_choice(exact), general[1].to_text()
        shapes = [list(key[0]) for key in specialised.kind.keys]
        self.register_buffer("general", general[0])
        return lambda leaves: choose(leaves, self.general, meta, shapes)


def _scripted_choice(exact: Callable[..., list[torch.Tensor]]) -> Callable[..., list[torch.Tensor]]:
    """Return a scripted function that runs `exact` for the given shapes, and an island for all others."""

    def choose(
        leaves: list[torch.Tensor], general: torch.Tensor, meta: str, shapes: list[list[int]]
    ) -> list[torch.Tensor]:
        same = True
        for index, leaf in enumerate(leaves):
            if list(leaf.shape) != shapes[index]:
                same = False
        if same:
            return exact(leaves)
        # Scripted: no cast may be used here, and no reason may follow the comment.
        return torch.ops.torchport.island(general, meta, leaves)  # type: ignore[no-any-return]

    with quiet_torch():
        return torch.jit.script(choose)


@functools.cache
def _scripted_check() -> Callable[..., torch.Tensor]:
    with quiet_torch():
        return torch.jit.script(check_input)


def check_input(
    tensor: torch.Tensor, shape: list[int], dtype: torch.dtype, what: str, wanted: str
) -> torch.Tensor:
    """Return the tensor, or raise; scripted into the model, where other shapes would give wrong results.

    The shape `[-1]` matches any shape.
    """
    if shape != [-1] and list(tensor.shape) != shape:
        raise RuntimeError(f"{what} has the shape {tensor.shape}, but the model was compiled for {wanted}")
    if tensor.dtype != dtype:
        raise RuntimeError(f"{what} has another dtype, but the model was compiled for {wanted}")
    return tensor


def _kind(key: LeafKey) -> str:
    return str(TensorSpec(tuple(key[0]), str(key[1]).removeprefix("torch.")))


def _readable(path: str, names: Sequence[str]) -> str:
    """Return a tensor's path in the inputs, by the input's name: `x[1]` for `[0][0][1]`."""
    if not path.startswith("[0]["):
        return path.removeprefix("[1].")
    index, _, rest = path.removeprefix("[0][").partition("]")
    return names[int(index)] + rest


def plain_result(value: object, where: str = "the result") -> object:
    """Convert a result to types that TorchScript can return: tensors, tuples, lists, and dicts for mappings.

    Raises:
        PackageError: the result contains something else.
    """
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, Mapping):
        return {key: plain_result(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(plain_result(item, f"{where}[{index}]") for index, item in enumerate(value))
    if isinstance(value, list):
        return [plain_result(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise PackageError(
        f"{where} is a {type(value).__name__}, which TorchScript cannot return from a trace",
        remedy="torchport.save(compiled, 'model.pt2') supports results of any structure",
    )

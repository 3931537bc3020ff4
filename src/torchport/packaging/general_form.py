"""A model's own graph for inputs of any shape, in a package: an island of the host's, with guards on sizes.

It runs what the other islands of a package cannot: other shapes, and values that they were not built for.
"""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.utils._sympy.value_ranges import ValueRanges

from torchport import capture, targets
from torchport.capture import ANY_BATCH, quiet_torch
from torchport.compiler.build import versions
from torchport.errors import CaptureError, PackageError, TargetError
from torchport.packaging.structure_json import encode_structure
from torchport.records import IslandMeta, TensorSpec, digest_of
from torchport.runtime.island import GUARDS
from torchport.structure import flatten_call
from torchport.targets import Island

_COMPARISONS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}


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
        dynamic_shapes: which dimensions may vary, as `torchport.capture.export` takes it.
        name: the model's name.

    Returns:
        The payload of an island of the target `host`, and its metadata.

    Raises:
        PackageError: it cannot be captured so, or not written down.
    """
    try:
        if dynamic_shapes == ANY_BATCH:
            args, kwargs = _several(args, kwargs)
        captured = capture.export(model, args, kwargs, name=name, dynamic_shapes=dynamic_shapes)
        # Without ops that write to their arguments: what is written is then in the signature.
        with quiet_torch():
            graph_module = _graph_of(captured.program.run_decompositions({}))
        result = encode_structure(captured.result)
        guards = _guards_of(captured.program)
        inputs = _inputs_of(captured.program, captured.leaves, guards)
        if dynamic_shapes is not None and not any(-1 in spec.shape for spec in inputs):
            raise PackageError("the model lets none of its inputs' sizes vary")
        host = targets.find("host")
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


def _several(
    args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Sequence[object], Mapping[str, object]]:
    """Return inputs whose batch is not one: torch takes a size of one for what the model is made for."""
    flat = flatten_call(tuple(args), dict(kwargs))
    single = [leaf.dim() > 0 and leaf.shape[0] == 1 for leaf in flat.leaves]
    grown = [torch.cat([leaf, leaf]) if one else leaf for leaf, one in zip(flat.leaves, single, strict=True)]
    call = flat.structure.rebuild(grown)
    assert isinstance(call, tuple)  # the structure of (args, kwargs)
    return call


def meta_text(meta: IslandMeta) -> str:
    """Return an island's metadata as the op takes it."""
    return json.dumps(meta.to_json(), sort_keys=True)


def _graph_of(program: ExportedProgram) -> fx.GraphModule:
    """Return the graph from tensors to tensors, with the weights as its attributes."""
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
        raise PackageError(f"its graph takes {spec.target}, which is no tensor")
    return found


def _input_shapes(program: ExportedProgram) -> list[list[object]]:
    names = set(program.graph_signature.user_inputs)
    return [
        [size if isinstance(size, int) else size.node.expr for size in node.meta["val"].shape]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names
    ]


def _inputs_of(
    program: ExportedProgram, leaves: Sequence[torch.Tensor], guards: Sequence[object]
) -> tuple[TensorSpec, ...]:
    """Return what the graph takes; a size that may vary is -1."""
    return tuple(
        TensorSpec(
            tuple(
                -1 if _varies(size, ["size", index, dim], guards) else leaf.shape[dim]
                for dim, size in enumerate(shape)
            ),
            str(leaf.dtype).removeprefix("torch."),
        )
        for index, (shape, leaf) in enumerate(zip(_input_shapes(program), leaves, strict=True))
    )


def _varies(size: object, place: object, guards: Sequence[object]) -> bool:
    fixed = (guard for guard in guards if isinstance(guard, list) and guard[0] == "==" and place in guard)
    return not isinstance(size, int) and not any(isinstance(term, int) for guard in fixed for term in guard)


def _guards_of(program: ExportedProgram) -> list[object]:
    """Return all that torch assumed of the sizes when it captured the program."""
    guards: list[object] = []
    symbols: dict[str, object] = {}
    derived: list[tuple[object, object]] = []
    for leaf, shape in enumerate(_input_shapes(program)):
        for dim, size in enumerate(shape):
            place = ["size", leaf, dim]
            if isinstance(size, int):
                guards.append(["==", place, size])
            elif size.is_symbol and str(size) not in symbols:  # type: ignore[attr-defined]
                symbols[str(size)] = place
            else:
                derived.append((place, size))
    guards += [["==", place, _term(str(size), symbols)] for place, size in derived]
    for symbol, limits in program.range_constraints.items():
        if symbol.is_symbol and str(symbol) in symbols:
            guards += [[sign, symbols[str(symbol)], limit] for sign, limit in _finite(limits)]
    texts = getattr(program, "_guards_code", None)  # as Python, with L['leaves'][0].size()[1]
    if texts is None:
        raise PackageError("this version of torch does not say what it assumes of sizes")
    return guards + [_term(text, symbols) for text in texts]


def _finite(limits: ValueRanges[Any]) -> list[tuple[str, int]]:
    bounds = ((">=", limits.lower), ("<=", limits.upper))
    return [(sign, int(bound)) for sign, bound in bounds if abs(bound) < 2**62]


def _term(text: str, symbols: Mapping[str, object]) -> object:
    """Return a condition in Python as data; see `torchport.runtime.shape_guards`."""
    return _Terms(text, symbols).term(ast.parse(text, mode="eval").body)


class _Terms:
    """Reads a condition in Python.

    Args:
        text: all of it, for messages.
        symbols: the terms that names stand for.
    """

    def __init__(self, text: str, symbols: Mapping[str, object]) -> None:
        self._text = text
        self._symbols = symbols

    def term(self, node: ast.expr) -> object:
        """Return a part as data."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in self._symbols:
            return self._symbols[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return [_ARITHMETIC[type(node.op)], self.term(node.left), self.term(node.right)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return ["-", 0, self.term(node.operand)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ["not", self.term(node.operand)]
        if isinstance(node, ast.BoolOp):
            head = "and" if isinstance(node.op, ast.And) else "or"
            return [head, *[self.term(value) for value in node.values]]
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            return [node.func.id, *[self.term(argument) for argument in node.args]]
        return self._size(node)

    def _comparison(self, node: ast.Compare) -> object:
        terms = [self.term(part) for part in (node.left, *node.comparators)]
        signs = [_COMPARISONS.get(type(sign)) for sign in node.ops]
        if None in signs:
            raise self._refusal()
        pairs = [[sign, *pair] for sign, pair in zip(signs, itertools.pairwise(terms), strict=True)]
        return pairs[0] if len(pairs) == 1 else ["and", *pairs]

    def _size(self, node: ast.expr) -> object:
        """Return the term for `L['leaves'][TENSOR].size()[DIMENSION]`."""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            parts = ast.unparse(node.value).removeprefix("L['leaves'][").removesuffix("].size()")
            if parts.isdigit() and ast.unparse(node.value) == f"L['leaves'][{parts}].size()":
                return ["size", int(parts), node.slice.value]
        raise self._refusal()

    def _refusal(self) -> PackageError:
        return PackageError(f"torch assumes {self._text}, which has no form in a package")

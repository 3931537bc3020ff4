"""Decomposes only the ops of a graph that need it, tracing each kind of call once.

torch decomposes a program by retracing all of it, twice, though most ops stay as they are and layers repeat.
Here the calls that change are found first. One call of each kind, which is an op with arguments of the same
shapes, is traced, and the result replaces every call of that kind.

Only graphs for which this is sure to give torch's own result are accepted: calls of ops without side effects,
on plain tensors. An op may write in place to its argument if no other node reads that memory. Other graphs
are left to torch.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from torchport.compiler.in_place_writes import Aliases, NotInPieces, writes_in_place
from torchport.runtime.autocast import is_casting
from torchport.targets.target import Decompositions
from torchport.torch_private import (
    DispatchKey,
    FakeTensor,
    FakeTensorMode,
    FunctionalTensor,
    FunctionalTensorMode,
    OpOverload,
    compiling,
    dispatch_functionalize,
    enable_python_dispatcher,
    has_data_mutation,
    has_effects,
    has_kernel,
    keeping_composites,
    preserve_composite,
    tree_leaves,
    without_backend_decompositions,
)

_TAKEN_INPUTS = frozenset(
    {InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR}
)
# torch's functionalization handles these specially.
_ALWAYS_TRACED = frozenset(
    {torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default}
    | {torch.ops.aten.detach.default, torch.ops.aten.alias.default}
)
_SIZE_OPS = frozenset(
    {torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int, torch.ops.aten.sym_numel.default}
    | {torch.ops.aten.sym_storage_offset.default, torch.sym_max, torch.sym_min, torch.sym_not}
    | {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, operator.pow}
)
_OWN = ("val", "tensor_meta")  # metadata that a node of a piece keeps; the rest comes from its call
_CONSTANTS = (
    bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format
)  # fmt: skip


@dataclass
class _Kind:
    """Calls that decompose in the same way.

    Args:
        first: the first of them.
        inputs: the values of its arguments that are nodes.
        placeholders: the nodes of the trace for these inputs.
        outputs: the nodes of the trace for its results: one, or a tuple. Numbers and None stay as they are.
    """

    first: fx.Node
    inputs: list[object]
    placeholders: list[fx.Node] = field(default_factory=list)
    outputs: object = None


def decompose_pieces(
    program: ExportedProgram, decompositions: Decompositions, kept: Collection[OpOverload]
) -> ExportedProgram:
    """Return the program with its composite ops decomposed.

    Args:
        program: the program.
        decompositions: the ops to decompose, with their decompositions.
        kept: the composite ops to keep.

    Raises:
        NotInPieces: it is not certain that this gives torch's own result.
    """
    graph = program.graph_module.graph
    kept = frozenset(kept)
    mode = _check(program)
    aliases = Aliases(graph)
    kinds: dict[object, _Kind] = {}
    kind_of: dict[fx.Node, _Kind] = {}
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        writes = writes_in_place(node, aliases)
        if not writes and not _is_decomposed(node.target, decompositions, kept):
            continue
        key, inputs = _key(node)
        if key not in kinds:
            kinds[key] = _Kind(node, inputs)
        kind_of[node] = kinds[key]
    if kinds:
        _trace(list(kinds.values()), mode, decompositions, kept)
    return _with_graph(program, _Rewriting(graph, kind_of, aliases).graph())


def _check(program: ExportedProgram) -> FakeTensorMode:
    """Return the fake mode of the graph's tensors; raise `NotInPieces` if the graph is not accepted."""
    modes = set()
    if is_casting():
        raise NotInPieces("autocast is on, which casts the inputs of ops while they are traced")
    if any(spec.kind not in _TAKEN_INPUTS for spec in program.graph_signature.input_specs):
        raise NotInPieces("it has inputs of an unsupported kind")
    if any(spec.kind is not OutputKind.USER_OUTPUT for spec in program.graph_signature.output_specs):
        raise NotInPieces("it has outputs of an unsupported kind")
    for tensor in (*program.state_dict.values(), *program.constants.values()):
        if not isinstance(tensor, torch.Tensor) or hasattr(tensor, "__tensor_flatten__"):
            raise NotInPieces("a weight is not a plain tensor")
    for node in program.graph_module.graph.nodes:
        if node.op not in ("placeholder", "call_function", "output"):
            raise NotInPieces(f"{node.name} is a {node.op}")
        if node.op == "call_function":
            if isinstance(node.target, OpOverload):
                if has_effects(node.target):
                    raise NotInPieces(f"{node.target} has side effects")
            elif node.target is not operator.getitem and node.target not in _SIZE_OPS:
                raise NotInPieces(f"{node.target} is not a torch op")
        if node.op == "output":
            continue
        for value in tree_leaves(node.meta.get("val")):
            if isinstance(value, FakeTensor):
                modes.add(value.fake_mode)
                if value.layout is not torch.strided:
                    raise NotInPieces(f"{node.name} is not strided")
            elif isinstance(value, torch.Tensor):
                raise NotInPieces(f"{node.name} is not a fake tensor")
            elif not isinstance(value, int | float | bool | torch.SymInt | None):
                raise NotInPieces(f"{node.name} is a {type(value).__name__}")
            if _has_symbols(value) and free_unbacked_symbols(value):
                raise NotInPieces(f"{node.name} has a data-dependent size")
    if len(modes) != 1:
        raise NotInPieces("its tensors come from several traces")
    return modes.pop()


def _has_symbols(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        numbers: Sequence[object] = (*value.shape, *value.stride(), value.storage_offset())
        return any(isinstance(number, torch.SymInt) for number in numbers)
    return isinstance(value, torch.SymInt)


def _is_decomposed(op: OpOverload, decompositions: Decompositions, kept: Collection[OpOverload]) -> bool:
    if op in kept:
        return False
    if op in decompositions or op in _ALWAYS_TRACED:
        return True
    composite = DispatchKey.CompositeImplicitAutograd
    return op not in _SIZE_OPS and (composite in op.py_kernels or has_kernel(op.name(), composite))


def _key(node: fx.Node) -> tuple[object, list[object]]:
    """Return everything that a call's decomposition depends on, and the values of its node arguments."""
    nodes = _argument_nodes(node)
    places = {each: place for place, each in enumerate(nodes)}
    inputs = [each.meta["val"] for each in nodes]
    if any(not isinstance(value, torch.Tensor | torch.SymInt | int | float) for value in inputs):
        raise NotInPieces(f"{node.name} takes the tuple of another op's results")

    def of_argument(value: object) -> object:
        if isinstance(value, fx.Node):
            return ("node", places[value])
        if isinstance(value, list | tuple):
            return (type(value).__name__, *map(of_argument, value))
        if isinstance(value, dict):
            return ("dict", *((name, of_argument(each)) for name, each in value.items()))
        if value is None or isinstance(value, _CONSTANTS):
            return (type(value).__name__, repr(value))
        raise NotInPieces(f"an argument of {node.name} is a {type(value).__name__}")

    arguments = (of_argument(node.args), of_argument(dict(node.kwargs)))
    return (node.target, arguments, tuple(map(_form, inputs))), inputs


def _form(value: Any) -> object:
    if isinstance(value, torch.Tensor):
        strides = tuple(map(_number, value.stride()))
        shape = tuple(map(_number, value.shape))
        flags = (value.is_conj(), value.is_neg(), value.requires_grad, isinstance(value, torch.nn.Parameter))
        return (value.dtype, value.device, shape, strides, _number(value.storage_offset()), flags)
    return (type(value).__name__, _number(value))


def _number(value: Any) -> object:
    return value.node.expr if isinstance(value, torch.SymInt) else repr(value)


def _argument_nodes(node: fx.Node) -> list[fx.Node]:
    return list(node.all_input_nodes)  # each once, in order


def _trace(
    kinds: list[_Kind],
    mode: FakeTensorMode,
    decompositions: Decompositions,
    kept: Collection[OpOverload],
) -> None:
    """Trace one call of each kind."""
    counts: list[int | None] = []  # the number of results of each call; None for one that is not in a tuple

    def call_all(*inputs: object) -> list[object]:
        left = iter(inputs)
        results: list[object] = []
        for kind in kinds:
            values: dict[fx.Node, Any] = dict(zip(_argument_nodes(kind.first), left, strict=False))
            args, kwargs = fx.map_arg((kind.first.args, dict(kind.first.kwargs)), values.__getitem__)
            result = kind.first.target(*args, **kwargs)  # type: ignore[operator]  # an op
            _check_writes(kind.first, values)
            several = isinstance(result, list | tuple)
            counts.append(len(result) if several else None)
            results += result if several else [result]
        return results

    with ExitStack() as stack:
        for context in (
            mode,
            keeping_composites(dict.fromkeys(kept, preserve_composite)),
            without_backend_decompositions(),
            torch.no_grad(),
            enable_python_dispatcher(),
            compiling(),  # or calls of torch.compile's graphs in other threads would raise meanwhile
        ):
            stack.enter_context(context)
        # Distinct objects: torch tracks a tensor by its identity.
        given = [_distinct(value) for kind in kinds for value in kind.inputs]
        functional = dispatch_functionalize(call_all, FunctionalTensorMode())
        try:
            traced = make_fx(functional, decomposition_table=dict(decompositions))(*given)
        except NotInPieces:
            raise
        except Exception as error:  # torch raises many kinds; decomposing the whole program raises its own
            raise NotInPieces(f"a call cannot be traced on its own: {error}") from error
    _split_trace(traced.graph, kinds, counts)


def _check_writes(node: fx.Node, values: Mapping[fx.Node, object]) -> None:
    """Raise if a call wrote to more than its schema says: batch norms write to their running statistics."""
    may_write = node.target._schema.is_mutable  # type: ignore[union-attr]  # an op
    for place, value in enumerate(values.values()):
        if isinstance(value, FunctionalTensor) and has_data_mutation(value.elem) and (place or not may_write):
            raise NotInPieces(f"{node.target} writes to an argument")


def _distinct(value: object) -> object:
    """Return a tensor as a new object with the same `requires_grad`, which some decompositions check."""
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def _split_trace(traced: fx.Graph, kinds: list[_Kind], counts: list[int | None]) -> None:
    """Assign to each kind its placeholders and outputs in the trace."""
    placeholders = iter(node for node in traced.nodes if node.op == "placeholder")
    outputs = iter(traced.output_node().args[0])  # type: ignore[arg-type]  # a list
    for kind, count in zip(kinds, counts, strict=True):
        kind.placeholders = [next(placeholders) for _ in kind.inputs]
        kind.outputs = next(outputs) if count is None else tuple(next(outputs) for _ in range(count))
        made = [each.meta["val"] if isinstance(each, fx.Node) else each for each in _as_tuple(kind.outputs)]
        if list(map(_layout, made)) != list(map(_layout, _as_tuple(kind.first.meta["val"]))):
            raise NotInPieces(f"{kind.first.target} has other strides when traced on its own")
    used = set(_before(traced.output_node()))
    for node in traced.nodes:
        if node.op == "get_attr":
            raise NotInPieces("a piece has a constant")
        if node.op == "call_function" and node not in used and node.is_impure():
            raise NotInPieces(f"{node.target} in a piece has side effects")


def _as_tuple(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _layout(value: object) -> object:
    """Return the properties of a value that later ops depend on, such as a tensor's dtype and strides."""
    if not isinstance(value, torch.Tensor):
        return _number(value)
    return value.dtype, value.device, tuple(map(_number, value.shape)), tuple(map(_number, value.stride()))


def _is_needed(node: fx.Node) -> bool:
    """Whether a node without users is kept; like torch, unused random ops are not."""
    return bool(node.is_impure(impure_random=False))


def _before(node: fx.Node) -> Iterator[fx.Node]:
    """Yield all nodes that a node depends on."""
    seen: set[fx.Node] = set()
    left = list(node.all_input_nodes)
    while left:
        each = left.pop()
        if each not in seen:
            seen.add(each)
            yield each
            left += each.all_input_nodes


class _Rewriting:
    """Writes the new graph."""

    def __init__(self, old: fx.Graph, kind_of: Mapping[fx.Node, _Kind], aliases: Aliases) -> None:
        self._old = old
        self._kind_of = kind_of
        self._aliases = aliases
        self._new = fx.Graph()
        self._values: dict[fx.Node, Any] = {}
        # The arguments of each kind's first call, by the placeholders of the trace: sizes may refer to them.
        self._firsts: dict[fx.Node, fx.Node] = {
            placeholder: node
            for kind in {id(each): each for each in kind_of.values()}.values()
            for placeholder, node in zip(kind.placeholders, _argument_nodes(kind.first), strict=True)
        }

    def graph(self) -> fx.Graph:
        """Return the new graph."""
        for node in self._old.nodes:
            if node in self._kind_of:
                value = self._put(node, self._kind_of[node])
            elif node.target is operator.getitem and isinstance(self._value(node.args[0]), tuple):
                value = self._value(node.args[0])[node.args[1]]
            else:
                value = self._new.node_copy(node, self._value)
            self._values[self._aliases.original(node)] = value
        self._new.eliminate_dead_code(_is_needed)
        return self._new

    def _value(self, node: Any) -> Any:
        return self._values[self._aliases.original(node)]

    def _put(self, node: fx.Node, kind: _Kind) -> object:
        """Write the decomposition of a call in its place."""
        found: dict[fx.Node, fx.Node] = {
            placeholder: self._value(argument)
            for placeholder, argument in zip(kind.placeholders, _argument_nodes(node), strict=True)
        }
        outputs = _as_tuple(kind.outputs)
        wanted = [each for each in outputs if isinstance(each, fx.Node)]
        needed = {*wanted, *(each for output in wanted for each in _before(output))} - set(found)
        for each in sorted(needed):
            if each.op == "placeholder":
                is_tensor = isinstance(each.meta["val"], torch.Tensor)
                if is_tensor and any(user in needed and user.target not in _SIZE_OPS for user in each.users):
                    raise NotInPieces(f"{node.target} reads an argument of another call")
                found[each] = self._value(self._firsts[each])
                continue
            made = self._new.node_copy(each, found.__getitem__)
            own: dict[str, object] = {name: made.meta[name] for name in _OWN if name in made.meta}
            made.meta = {**node.meta, **own}
            found[each] = made
        values = tuple(found[each] if isinstance(each, fx.Node) else each for each in outputs)
        return values if isinstance(kind.outputs, tuple) else values[0]


def _with_graph(program: ExportedProgram, graph: fx.Graph) -> ExportedProgram:
    """Return a program with another graph that has the same inputs and outputs."""
    graph_module = fx.GraphModule({}, graph)
    graph_module.meta.update(program.graph_module.meta)
    returned = graph.output_node().args[0]
    specs = [
        dataclasses.replace(spec, arg=dataclasses.replace(spec.arg, name=value.name))
        if isinstance(value, fx.Node)
        else spec
        for spec, value in zip(program.graph_signature.output_specs, returned, strict=True)  # type: ignore[arg-type]  # a tuple
    ]
    return ExportedProgram(
        root=graph_module,
        graph=graph,
        graph_signature=ExportGraphSignature(program.graph_signature.input_specs, specs),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
    )

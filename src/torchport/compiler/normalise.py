"""Exported program → the normalized graph that targets see: decomposed, with its weights as attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from torchport.capture import CapturedModel, SharedResult, quiet_torch, user_name
from torchport.compiler.decompose import decompose
from torchport.compiler.views import base_of, is_view_of, strided_view
from torchport.errors import CaptureError
from torchport.targets import Target
from torchport.targets.size_terms import is_size
from torchport.torch_private import HigherOrderOperator, OpOverload, remove_effect_tokens


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A parameter, buffer or constant tensor of the model.

    Args:
        name: its name in the user's model.
        tensor: the tensor itself, not a copy.
    """

    name: str
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class NormalGraph:
    """A functional graph of ATen ops.

    Args:
        graph_module: placeholders are the inputs' tensors, `get_attr` nodes the weights; its output
            is a tuple of the written values, then the results.
        weights: the weights by the attribute that holds them.
        writes: the nodes that are overwritten at the end of a call, in the order of the output.
        shared: the results that alias written memory: by result index, the index of the write and the view.
    """

    graph_module: fx.GraphModule
    weights: dict[str, Weight]
    writes: tuple[fx.Node, ...]
    shared: Mapping[int, tuple[int, SharedResult]] = field(default_factory=dict)

    @property
    def output(self) -> fx.Node:
        """The graph's output node."""
        return self.graph_module.graph.output_node()

    @property
    def written(self) -> list[fx.Node]:
        """The values that are written to `writes`."""
        values = self.output.args[0]
        assert isinstance(values, (tuple, list))
        return list(values[: len(self.writes)])

    @property
    def returned(self) -> list[object]:
        """The results of a call: nodes, or constants."""
        values = self.output.args[0]
        assert isinstance(values, (tuple, list))
        return list(values[len(self.writes) :])


def normalise(captured: CapturedModel, target: Target) -> NormalGraph:
    """Apply the target's decompositions and turn lifted weights into attributes."""
    try:
        with quiet_torch(), torch.no_grad():
            program = decompose(captured.program, target.decompositions(), target.kept_composites())
            if any(spec.kind is InputKind.TOKEN for spec in program.graph_signature.input_specs):
                program = remove_effect_tokens(program)
    except Exception as error:  # torch raises many kinds; each is a refusal
        raise CaptureError(
            f"torch cannot decompose the graph: {str(error).strip().splitlines()[0][:300]}",
            where=captured.name,
            remedy='use torch.compile(model, backend="torchport"), which runs such a graph with eager torch',
        ) from error
    graph = _unlift(program, captured.shared)
    remove_no_ops(graph.graph_module)
    return graph


def _unlift(program: ExportedProgram, shared: Sequence[SharedResult]) -> NormalGraph:
    graph_module = program.graph_module
    graph = graph_module.graph
    weights: dict[str, Weight] = {}
    by_name: dict[str, fx.Node] = {}
    parameters: dict[int, fx.Node] = {}
    placeholders = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        node = placeholders[spec.arg.name]
        if spec.kind is InputKind.USER_INPUT:
            by_name[node.name] = node
            continue
        assert spec.target is not None
        tensor = _tensor_of(program, spec.target)
        if not isinstance(tensor, torch.Tensor):
            continue  # a script object: the graph keeps it as it is
        attribute_node = parameters.get(id(tensor))  # tied weights share one node
        if attribute_node is None:
            attribute = f"weight_{len(weights)}"
            weights[attribute] = Weight(user_name(spec.target), tensor)
            graph_module.register_buffer(attribute, tensor, persistent=False)
            with graph.inserting_before(node):
                attribute_node = graph.get_attr(attribute)
            attribute_node.meta = dict(node.meta)
            if spec.kind is InputKind.PARAMETER:
                parameters[id(tensor)] = attribute_node
        node.replace_all_uses_with(attribute_node)
        graph.erase_node(node)
        by_name[spec.target] = attribute_node
    writes = []
    for output in program.graph_signature.output_specs:
        if output.kind in (
            OutputKind.BUFFER_MUTATION,
            OutputKind.USER_INPUT_MUTATION,
            OutputKind.PARAMETER_MUTATION,
        ):
            assert output.target is not None
            writes.append(by_name[output.target])
    inputs = program.graph_signature.user_inputs
    found = {}
    for item in shared:
        if item.kind == "result":
            _share_result(graph, len(writes), item)
            continue
        base = by_name.get(str(inputs[item.base] if isinstance(item.base, int) else item.base))
        if base in writes:
            found[item.result] = (writes.index(base), item)
    graph_module.recompile()
    return NormalGraph(graph_module, weights, tuple(writes), found)


def _share_result(graph: fx.Graph, writes: int, item: SharedResult) -> None:
    """Make a result a view of another result, rather than a copy of it."""
    output = graph.output_node()
    values = list(output.args[0])  # type: ignore[arg-type]  # a tuple
    base, value = values[writes + int(item.base)], values[writes + item.result]
    assert isinstance(base, fx.Node)
    assert isinstance(value, fx.Node)
    if is_view_of(value, base) or is_view_of(base, value):
        return  # the graph has the view already
    with graph.inserting_before(output):
        view = strided_view(graph, base, item)
    values[writes + item.result] = view
    output.args = (tuple(values),)


def _tensor_of(program: ExportedProgram, name: str) -> object:
    if name in program.state_dict:
        return program.state_dict[name]
    return program.constants[name]


# Ops that are no-ops in a functional graph.
_NO_OPS = frozenset(
    {"aten.detach.default", "aten.alias.default", "aten.lift_fresh_copy.default", "aten.lift_fresh.default",
     "aten.detach_copy.default", "aten.alias_copy.default"}
)  # fmt: skip
_DROPPED = frozenset({"aten._assert_tensor_metadata.default"})


def remove_no_ops(graph_module: fx.GraphModule) -> None:
    """Remove no-ops and dead code."""
    graph = graph_module.graph
    returned = set(graph.output_node().all_input_nodes)
    for node in list(graph.nodes):
        name = str(node.target)
        if name in _DROPPED:
            graph.erase_node(node)
        elif _is_no_op(node, returned):
            source = node.args[0]
            assert isinstance(source, fx.Node)
            if node in returned:
                returned = (returned - {node}) | {source}
            node.replace_all_uses_with(source)
            graph.erase_node(node)
        elif name == "aten.cat.default":
            _drop_empty(node)
        elif name == "aten.copy.default":
            _as_clone(node)
        elif name == "aten._to_copy.default" and node.kwargs.get("device") == node.args[0].meta["val"].device:
            node.kwargs = {key: value for key, value in node.kwargs.items() if key != "device"}
    graph.eliminate_dead_code()
    graph_module.recompile()


def _is_no_op(node: fx.Node, returned: set[fx.Node]) -> bool:
    """Whether a node can be replaced by its input; a result must not become an alias of another tensor."""
    if str(node.target) not in _NO_OPS:
        return node not in returned and _is_same_view(node)
    if node not in returned:
        return True
    source = node.args[0]
    assert isinstance(source, fx.Node)
    while source not in returned and (base := base_of(source)) is not None:
        source = base
    return source not in returned and source.op not in ("placeholder", "get_attr")


def _is_same_view(node: fx.Node) -> bool:
    """Whether an `as_strided` keeps its input's strides; pooling to one pixel sets those of 1-sized dims."""
    if str(node.target) != "aten.as_strided.default" or len(node.args) != 3:
        return False
    source, sizes, strides = node.args
    assert isinstance(source, fx.Node)
    tensor = source.meta["val"]
    if list(tensor.shape) != sizes or tensor.storage_offset() != 0:
        return False
    given = zip(sizes, strides, tensor.stride(), strict=True)  # type: ignore[arg-type]  # lists of numbers
    return all(size == 1 or stride == old for size, stride, old in given)


def _as_clone(node: fx.Node) -> None:
    """Turn a copy that overwrites a whole tensor into a clone: the old values do not matter."""
    old, new = node.args[0], node.args[1]
    assert isinstance(old, fx.Node)
    if isinstance(new, fx.Node) and all(
        getattr(old.meta["val"], key) == getattr(new.meta["val"], key) for key in ("shape", "dtype", "device")
    ):
        node.target = torch.ops.aten.clone.default
        node.args, node.kwargs = (new,), {}


def _drop_empty(node: fx.Node) -> None:
    """Drop empty tensors from a concatenation: caches start from an empty tensor."""
    items = node.args[0]
    assert isinstance(items, (list, tuple))
    if not all(isinstance(item.meta["val"].numel(), int) for item in items):  # type: ignore[union-attr]  # nodes, of a list of tensors
        return  # known only at run time
    full = [item for item in items if item.meta["val"].numel()]  # type: ignore[union-attr]  # as above
    same_dtype = all(item.meta["val"].dtype == node.meta["val"].dtype for item in full)  # type: ignore[union-attr]  # as above
    if not full or len(full) == len(items) or not same_dtype:
        return
    if len(full) > 1:
        node.args = (full, *node.args[1:])
        return
    # Still a copy, like the result of a concatenation.
    node.target = torch.ops.aten.clone.default
    node.args, node.kwargs = (full[0],), {"memory_format": torch.contiguous_format}


def count_ops(graph_module: fx.GraphModule) -> list[str]:
    """Return the names of the torch ops in a graph, one entry per call."""
    return [str(node.target) for node in graph_module.graph.nodes if is_op(node)]


def is_op(node: fx.Node) -> bool:
    """Whether a node is a torch op: neither a `getitem` nor a size."""
    return (
        node.op == "call_function"
        and isinstance(node.target, (OpOverload, HigherOrderOperator))
        and not is_size(node)
    )

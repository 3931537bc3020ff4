"""A model → the graph to quantize: functional, norms folded, with any batch size where possible."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from torchport import capture
from torchport.capture import ANY_BATCH, CapturedModel, ShapeLimits, quiet_torch
from torchport.compiler.decompose import decompose
from torchport.errors import CaptureError, QuantizationError, one_line
from torchport.quantization.calibration import CalibrationData
from torchport.quantization.fold_norms import fold_norms
from torchport.quantization.graph_tensors import add_tensor, tensor_of
from torchport.quantization.model_runs import NO_LABELS, call, check_evaluating, result_tensors, stand_in
from torchport.quantization.products import store_computed_weights
from torchport.quantization.zero_products import remove_zero_products
from torchport.structure import Structure, flatten
from torchport.targets.decompositions import is_composite
from torchport.torch_private import FakeTensorMode, OpOverload

# Composite ops that are decomposed, so that their steps are quantized individually.
_DECOMPOSED = (
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell",
)
# Outputs that are written to the model's inputs or its own tensors.
_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION)


@dataclass(frozen=True, slots=True, eq=False)
class CapturedCall:
    """How a graph of flat tensors is called as the model is.

    Args:
        name: the model's name.
        inputs, result: the structures of the model's inputs and its result.
        limits: the shapes that the graph accepts.
        takes_one: whether it also works for a batch of one, which torch's limits exclude; this was tested.
    """

    name: str
    inputs: Structure
    result: Structure
    limits: ShapeLimits
    takes_one: bool = False

    def check(self, leaves: Sequence[torch.Tensor]) -> None:
        """Reject tensors of unsupported shapes.

        Raises:
            RuntimeRefusal: names the dimension.
        """
        if self.takes_one and all(leaf.dim() and leaf.shape[0] == 1 for leaf in leaves):
            leaves = [leaf.expand(2, *leaf.shape[1:]) for leaf in leaves]
        self.limits.check(leaves, self.name)


@dataclass(frozen=True, slots=True, eq=False)
class FloatGraph:
    """A model in floats, as a graph.

    Args:
        graph_module: maps the input tensors to the result tensors.
        call: the model's call interface.
        judged: the indices of the results that are judged: all but caches.
    """

    graph_module: fx.GraphModule
    call: CapturedCall
    judged: Collection[int]

    @property
    def name(self) -> str:
        """The model's name."""
        return self.call.name


def capture_floats(
    model: nn.Module, data: CalibrationData, name: str, dynamic_shapes: object = None
) -> FloatGraph:
    """Capture a model on the first item of the calibration data.

    Without `dynamic_shapes`, any batch size is accepted if the model allows that.

    Raises:
        QuantizationError: the model is in training mode, not in float32, not on the CPU, modifies its inputs
            or its own state, or cannot be captured on the first item.
    """
    _check_model(model, name)
    args, kwargs = data.call(0)
    doubled = _doubled(data) if dynamic_shapes is None else None
    if doubled is not None:
        try:
            graph = _graph_of(capture.export(model, *doubled, name=name, dynamic_shapes=ANY_BATCH))
            takes_one = _takes_one(graph, model, data)
            if takes_one or len(data.load(0)[0]) > 1:  # otherwise it treats a batch of one specially
                return replace(graph, call=replace(graph.call, takes_one=takes_one))
        except (CaptureError, QuantizationError, _NotDecomposed):
            pass  # fall back to a fixed batch size, or to its error message
    try:
        return _graph_of(capture.export(model, args, kwargs, name=name, dynamic_shapes=dynamic_shapes))
    except (CaptureError, _NotDecomposed) as error:
        what = error.what if isinstance(error, CaptureError) else str(error)
        raise QuantizationError(
            f"the model cannot be captured on the first item of the calibration data: {what}",
            where=name,
            remedy=NO_LABELS,
        ) from error


def _check_model(model: nn.Module, name: str) -> None:
    check_evaluating(model, name)
    for path, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and tensor.dtype is not torch.float32:
            raise QuantizationError(
                f"{path} is in {str(tensor.dtype).removeprefix('torch.')}, but only float32 can be quantized",
                where=name,
                remedy="call model.float() first",
            )
        if tensor.device.type != "cpu":
            raise QuantizationError(
                f"{path} is on {tensor.device}", where=name, remedy="call model.cpu() first"
            )


def _doubled(data: CalibrationData) -> tuple[tuple[object, ...], dict[str, object]] | None:
    """Return the first item with at least two samples, so that torch does not specialize on a size of 1."""
    leaves = data.load(0)
    sizes = {leaf.shape[0] if leaf.dim() else 0 for leaf in leaves}
    if len(sizes) != 1 or 0 in sizes:
        return None
    if sizes == {1}:
        leaves = [torch.cat([leaf, leaf]) for leaf in leaves]
    assert data.structure is not None
    return data.structure.rebuild(leaves)  # type: ignore[return-value]  # of (args, kwargs)


def _takes_one(graph: FloatGraph, model: nn.Module, data: CalibrationData) -> bool:
    """Whether the graph matches the model for a batch of one."""
    leaves = [leaf[:1] for leaf in data.load(0)]
    given: Any = graph.call.inputs.rebuild(leaves)
    try:
        expected = flatten(call(stand_in(model), *given)).leaves
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            found = graph.graph_module.forward(*leaves)  # calling the module would print any error
    except Exception:  # noqa: BLE001  # a model may raise anything
        return False
    return len(found) == len(expected) and all(
        one.shape == other.shape and torch.allclose(one, other, rtol=1e-3, atol=1e-4)
        for one, other in zip(found, expected, strict=True)
    )


class _NotDecomposed(Exception):
    """The program cannot be decomposed, as for a recurrent layer whose steps depend on the batch size."""


def _graph_of(captured: CapturedModel) -> FloatGraph:
    if captured.result.has_symbols:
        raise QuantizationError(
            "a result holds a number that depends on the sizes of the inputs",
            where=captured.name,
            remedy="leave dynamic_shapes out, or compute the number in the caller",
        )
    try:
        program = functional(captured.program, _DECOMPOSED)
    except Exception as error:  # torch raises many kinds
        raise _NotDecomposed(one_line(error)) from error
    if writes(program):
        raise QuantizationError(
            "the model modifies its inputs or its own tensors",
            where=captured.name,
            remedy="quantize a part of it that does not",
        )
    graph_module = program.module(check_guards=False)
    assert isinstance(graph_module, fx.GraphModule)
    for node in list(graph_module.graph.nodes):
        if str(node.target) == "aten._assert_tensor_metadata.default":
            graph_module.graph.erase_node(node)
    # The module that torch.export makes refuses eval().
    graph_module = fx.GraphModule(graph_module, graph_module.graph, captured.name)
    store_computed_weights(graph_module)
    fold_norms(graph_module)
    remove_zero_products(graph_module)
    limits = ShapeLimits.of(program, captured.inputs.paths)
    call = CapturedCall(captured.name, captured.inputs, captured.result, limits)
    return FloatGraph(graph_module, call, judged_results(captured))


def judged_results(captured: CapturedModel) -> set[int]:
    """Return the indices of the results that are judged: all but caches."""
    _, objects = captured.inputs.rebuild_with_objects(captured.leaves)
    places = [torch.empty(0) for _ in captured.result.paths]
    judged = {id(each) for each in result_tensors(captured.result.rebuild(places, captured.leaves, objects))}
    return {place for place, each in enumerate(places) if id(each) in judged}


def functional(program: ExportedProgram, taken_apart: Collection[str] = ()) -> ExportedProgram:
    """Return a functional program: values that its ops wrote in place become outputs.

    Args:
        program: the program.
        taken_apart: the names of composite ops to decompose.
    """
    ops = {node.target for node in program.graph.nodes if isinstance(node.target, OpOverload)}
    ops.add(torch.ops.aten.linear.default)  # recurrent layers decompose to it
    kept = [op for op in ops if is_composite(op) and op._schema.name.split("::")[1] not in taken_apart]
    with quiet_torch(), torch.no_grad():
        return decompose(program, {}, [*kept, torch.ops.aten.batch_norm.default])


def writes(program: ExportedProgram) -> bool:
    """Whether a functional program modifies its inputs or its own tensors."""
    return any(spec.kind in _WRITES for spec in program.graph_signature.output_specs)


class _StaticShapes(FakeTensorProp):
    """Gives each node the shape that it has for some inputs, and collects the numbers that are computed."""

    def __init__(self, module: fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(module, mode)
        self.numbers: dict[fx.Node, object] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, (int, float, bool)):
            self.numbers[n] = result
        return result


def fixed_copy(graph: FloatGraph, leaves: Sequence[torch.Tensor]) -> fx.GraphModule:
    """Return a copy with static shapes, whose nodes have the same names."""
    with quiet_torch(), torch.no_grad():
        made = copy.deepcopy(graph.graph_module)
        run = _StaticShapes(made, FakeTensorMode(allow_non_fake_inputs=True))
        run.propagate(*leaves)
    sizes = run.numbers

    def number(node: fx.Node) -> object:
        return sizes.get(node, node)

    for node in made.graph.nodes:
        if node not in sizes:
            node.args = fx.map_arg(node.args, number)  # type: ignore[arg-type]  # numbers, not nodes
            node.kwargs = fx.map_arg(node.kwargs, number)  # type: ignore[arg-type]  # as above
    _unshare(made)
    made.graph.eliminate_dead_code()
    made.recompile()
    return made


def _unshare(graph_module: fx.GraphModule) -> None:
    """Give each reader of a weight its own copy: nncf would quantize a shared one for only one reader."""
    for node in list(graph_module.graph.nodes):
        tensor = tensor_of(graph_module, node)
        if tensor is None or not tensor.is_floating_point():
            continue
        for count, user in enumerate(list(node.users)[1:]):
            with graph_module.graph.inserting_after(node):
                own = add_tensor(graph_module, f"{node.name}_{count + 2}", tensor.clone())
            own.meta = dict(node.meta)
            user.replace_input_with(node, own)

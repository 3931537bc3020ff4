"""Writes an island as a program by lowering its nodes in order."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import fx

from torchport.capture import module_path
from torchport.errors import TargetError
from torchport.targets.target import Artifact, Island
from torchport.targets.ttnn.builder import Builder, Data, Value
from torchport.targets.ttnn.estimate import estimate
from torchport.targets.ttnn.float32_values import float32_values
from torchport.targets.ttnn.format import pack
from torchport.targets.ttnn.fusion import applies, find_fusions
from torchport.targets.ttnn.lowering import Formed, Lowering, Result, Results, flat_shape, torch_value
from torchport.targets.ttnn.ops import RULES
from torchport.targets.ttnn.options import TtnnOptions
from torchport.targets.ttnn.refusal import Refused, refuse
from torchport.targets.ttnn.transfers import finish
from torchport.targets.ttnn.ttnn_program import TILE, Crossing, DeviceTensor, Dtype, TtnnProgram
from torchport.targets.value_ranges import input_ranges

# The torch dtype in which a weight of each device dtype is stored. torch has no block floats: the device
# converts them from bfloat16.
STORED_IN: dict[Dtype, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "bfloat8_b": torch.bfloat16,
    "bfloat4_b": torch.bfloat16,
    "float32": torch.float32,
    "int32": torch.int32,
    "uint32": torch.int32,
    "uint16": torch.int32,
}


def build(island: Island, options: TtnnOptions) -> Artifact:
    """Return the island as an artefact.

    Raises:
        TargetError: an op cannot be lowered in its place in the graph.
    """
    program, values = write_calls(island, options)
    ranges = input_ranges(island.graph_module)
    weights = {weight.name: weight.tensor for weight in program.weights}
    return pack(
        program,
        {name: _without_values(like) for name, like in weights.items()},
        lambda name: _stored(values[name](), weights[name].dtype),
        {
            "input_ranges": {str(index): list(bounds) for index, bounds in ranges.items()},
            "estimated_seconds": estimate(program),
            "peak_bytes": program.peak_bytes,
        },
    )


def make_lowering(
    options: TtnnOptions,
    weights: Callable[[fx.Node], torch.Tensor | None],
    in_float32: frozenset[fx.Node] = frozenset(),
) -> Lowering:
    """Return an empty lowering."""
    compute: Dtype = "float32" if options.dtype == "float32" else "bfloat16"
    weight: Dtype = "bfloat8_b" if options.dtype == "bfloat8_b" else compute
    return Lowering(Builder(), compute, weight, weights, in_float32)


def write_calls(island: Island, options: TtnnOptions) -> tuple[TtnnProgram, dict[str, Data]]:
    """Return an island's program, and by name functions that return the values of its weights.

    Raises:
        TargetError: an op cannot be lowered in its place in the graph.
    """
    module = island.graph_module
    lowering = make_lowering(
        options, lambda node: getattr(module, str(node.target)), float32_values(module.graph)
    )
    writer = _Writer(lowering, module.graph)
    for node in module.graph.nodes:
        try:
            writer.add(node)
        except Refused as refusal:
            raise TargetError(
                f"{node.target} cannot be lowered: {refusal.verdict.detail}", where=f"ttnn, {island.name}"
            ) from refusal
    builder = lowering.builder
    program = finish(builder, tuple(writer.outputs), options.math_fidelity, options.memory)
    return program, {weight.name: builder.weights[weight.name][1] for weight in program.weights}


def _without_values(like: DeviceTensor) -> torch.Tensor:
    return torch.empty(like.shape, dtype=STORED_IN[like.dtype], device="meta")


def _stored(tensor: torch.Tensor, dtype: Dtype) -> torch.Tensor:
    stored = tensor.to(STORED_IN[dtype])
    if _may_overflow(tensor, stored.dtype):
        overflown = stored.isinf() & tensor.isfinite()  # such as float32's lowest number, in masks
        stored = torch.where(overflown, torch.finfo(stored.dtype).max * tensor.sign(), stored)
        stored = stored.to(STORED_IN[dtype])
    return stored.contiguous()


def _may_overflow(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether an element could be too large for a dtype; computed without copying the tensor."""
    if not (tensor.is_floating_point() and dtype.is_floating_point and tensor.numel()):
        return False
    least, most = tensor.aminmax()
    return not (max(-least.item(), most.item()) <= torch.finfo(dtype).max)  # also true for NaN


class _Writer:
    """Adds nodes to a program."""

    def __init__(self, lowering: Lowering, graph: fx.Graph) -> None:
        self.lowering = lowering
        self.fusions = find_fusions(graph)
        lowering.fused = self.fusions.along
        self.outputs: list[Crossing] = []
        self._several: dict[fx.Node, list[Result | None]] = {}

    def add(self, node: fx.Node) -> None:
        """Add one node of the graph."""
        if node.op == "placeholder":
            self.lowering.put(node, self._input(node))
        elif node.op == "output":
            assert isinstance(node.args[0], (tuple, list))
            for place, item in enumerate(node.args[0]):
                assert isinstance(item, fx.Node)
                self.outputs.append(self._output(item, place))
        elif node.op == "call_function":
            self.lowering.builder.module = module_path(node)
            self._call(node)

    def _call(self, node: fx.Node) -> None:
        origin = self.fusions.inside.get(node)
        if origin is not None:
            if isinstance(node.meta["val"], torch.Tensor):
                self.lowering.share(node, origin)
            return
        if node.target is operator.getitem:
            source, place = node.args
            assert isinstance(source, fx.Node)
            assert isinstance(place, int)
            result = self._several[source][place]
            assert result is not None
            self.lowering.put(node, result)
            return
        results = RULES[str(node.target)].lowered(self.lowering, node)
        self._check_fused(node, results)
        if isinstance(results, list):
            self._several[node] = results
        else:
            self.lowering.put(node, results)

    def _check_fused(self, node: fx.Node, results: Results) -> None:
        """Refuse a lowering that drops the activation fused into its op."""
        activation = self.fusions.activation(node)
        if activation is None:
            return
        value = results.value if isinstance(results, Formed) else results
        assert isinstance(value, Value)  # convolutions, products and sums have one result
        name = self.lowering.unshaped(value).name
        calls = reversed(self.lowering.builder.calls)
        if not any(name in call.results and applies(call, activation) for call in calls):
            refuse("argument", f"its lowering does not apply {activation}, which is fused into it")

    def _input(self, node: fx.Node) -> Result:
        """Add an input that is transferred in the form in which it is used."""
        tensor = torch_value(node)
        dtype = "float32" if node in self.lowering.in_float32 else self.lowering.device_dtype(node)
        shape = tuple(tensor.shape)
        host = str(tensor.dtype).removeprefix("torch.")
        name = self.lowering.builder.fresh(node.name)
        images = len(shape) in (3, 4) and all(
            user.args[0] is node and (rule := RULES.get(str(user.target))) is not None and rule.on_images
            for user in node.users
        )
        if not images:
            crossing = Crossing(name, DeviceTensor(shape, dtype, "tile"), shape, host)
            return self.lowering.builder.input(crossing)
        # Few channels would be padded to whole tiles; convolution and pooling also accept row-major input.
        layout = "row_major" if shape[1] % TILE else "tile"
        order = (0, *range(2, len(shape)), 1)
        described = DeviceTensor(flat_shape(shape), dtype, layout)  # type: ignore[arg-type]  # one of two
        return Formed(self.lowering.builder.input(Crossing(name, described, shape, host, order)), "last")

    def _output(self, node: fx.Node, place: int) -> Crossing:
        """Return an output transferred in the form it has; the host permutes and reshapes it."""
        tensor = torch_value(node)
        shape = tuple(tensor.shape)
        host = str(tensor.dtype).removeprefix("torch.")
        last = self.lowering.only_last(node)
        value = self.lowering.unshaped(self.lowering.get(node, form="last" if last else "plain"))
        if tensor.is_floating_point() or tensor.dtype is torch.bool:
            value = self.lowering.cast(value, "float32")  # outside torch, the host has no bfloat16
        order = (0, *range(2, len(shape)), 1) if last else ()
        return Crossing(value.name, value.held.description, shape, host, order)

"""Applies the decisions of a calibration to a graph, for chosen layers.

The result has plain ATen ops that any engine can run: `fake_quantize_per_tensor_affine` where a tensor is
rounded, and weights as `int8 values → float32 * scale`. Eager torch simulates eight bits with them; OpenVINO
computes in eight bits.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping

import torch
from torch import fx, nn

from torchport.capture import quiet_torch
from torchport.quantization.decisions import Decisions, DynamicRange, Edge, QuantizedWeight
from torchport.quantization.dynamic_graph import divide_by_largest, scale_back
from torchport.quantization.graph_tensors import add_tensor
from torchport.quantization.half_graph import HALVES, Stored, halve
from torchport.quantization.layers import Layer, is_move, quantizer_before
from torchport.quantization.native_format_linear import OwnFormLinear
from torchport.quantization.operands import map_operands, operands
from torchport.records.quantization import Precision

aten = torch.ops.aten
_DIVIDED, _LARGEST = "divided", "largest"  # the nodes made for a tensor that is rounded by its own range


def quantized_copy(
    graph_module: fx.GraphModule,
    decisions: Decisions,
    layers: Collection[Layer],
    precisions: Mapping[str, Precision],
) -> fx.GraphModule:
    """Return a copy of a graph in which layers compute in their precisions.

    Args:
        graph_module: the graph in floats, which is not modified.
        decisions: the decisions of the calibration.
        layers: the layers.
        precisions: each layer's precision, by its name.
    """
    with quiet_torch():
        made = copy.deepcopy(graph_module)
    chosen = {layer.node: precisions[layer.name] for layer in layers}
    _Applier(made, decisions, chosen).run()
    made.graph.eliminate_dead_code()
    drop_unused(made)
    made.graph.lint()
    made.recompile()
    return made


def apply_edges(graph_module: fx.GraphModule, decisions: Decisions, chosen: Mapping[str, Precision]) -> None:
    """Quantize the inputs of layers, but not their weights.

    Args:
        graph_module: the graph, modified in place.
        decisions: the decisions of the calibration.
        chosen: the precision of each layer, by its node's name.
    """
    _Applier(graph_module, Decisions(decisions.edges), chosen).run()


class _Applier:
    """Applies decisions to a graph in place.

    Args:
        graph_module: the graph.
        decisions: the decisions of the calibration.
        chosen: the precision of each layer, by its node's name.
    """

    def __init__(
        self, graph_module: fx.GraphModule, decisions: Decisions, chosen: Mapping[str, Precision]
    ) -> None:
        self._graph_module = graph_module
        self._graph = graph_module.graph
        self._decisions = decisions
        self._chosen = chosen
        self._made: dict[tuple[str, str], fx.Node] = {}
        self._halves: Stored = {}
        self._weights: list[tuple[str, QuantizedWeight, fx.Node, fx.Node]] = []

    def run(self) -> None:
        """Modify the graph; all nodes to change are determined before the first node is added."""
        nodes = [node for node in self._graph.nodes if node.op == "call_function"]
        useful = self._useful_moves(nodes)
        for node in nodes:
            precision = self._chosen.get(node.name, "int8" if node in useful else "float")
            if precision in HALVES:
                halve(self._graph_module, node, HALVES[precision], self._halves)
            elif precision != "float":
                self._change(node, precision)

    def _useful_moves(self, nodes: list[fx.Node]) -> set[fx.Node]:
        """Return the ops that only move elements, on their way to a layer in eight bits."""
        useful: set[fx.Node] = set()
        for node in reversed(nodes):
            if node.name in self._chosen or not is_move(node):
                continue
            if any(user in useful or self._reads_int8(user, node) for user in node.users):
                useful.add(node)
        return useful

    def _reads_int8(self, user: fx.Node, source: fx.Node) -> bool:
        return self._chosen.get(user.name) == "int8" and any(
            operand is source and quantizer_before(user, place, self._decisions) is not None
            for place, operand in enumerate(operands(user))
        )

    def _change(self, node: fx.Node, precision: Precision) -> None:
        bias = self._decisions.biases.get(node.name)
        if bias is not None and precision == "int8":
            with self._graph.inserting_before(node):
                new = add_tensor(self._graph_module, f"{node.name}_bias", bias)
            node.args = (*node.args[:2], new, *node.args[3:])

        def replaced(place: int, value: fx.Node) -> fx.Node:
            weight = self._decisions.weights.get((node.name, place))
            if weight is not None:
                return self._weight(node, value, weight)
            edge = self._decisions.edges.get((node.name, place))
            return value if edge is None else self._edge(value, edge, node, precision)

        node.args, node.kwargs = map_operands(node, replaced)
        for place in range(len(operands(node))):
            edge = self._decisions.edges.get((node.name, place))
            if edge is not None and isinstance(edge.quantizer, DynamicRange) and precision == "int8":
                scale_back(self._graph, node, self._made[edge.quantizer.name, _LARGEST])
                break

    def _weight(self, node: fx.Node, value: fx.Node, weight: QuantizedWeight) -> fx.Node:
        with self._graph.inserting_before(node):
            values, scale = self._stored(node, str(value.target), weight)
            floats = self._graph.call_function(aten._to_copy.default, (values,), {"dtype": torch.float32})
            product = self._graph.call_function(aten.mul.Tensor, (floats, scale))
        for made in (floats, product):
            made.meta = _origin(node)
        return product

    def _stored(self, node: fx.Node, source: str, weight: QuantizedWeight) -> tuple[fx.Node, fx.Node]:
        """Return the nodes that read a weight; layers that share one share its quantized form."""
        for other, known, values, scale in self._weights:
            if other == source and torch.equal(known.values, weight.values) and torch.equal(
                known.scale, weight.scale
            ):  # fmt: skip
                return values, scale
        values = add_tensor(self._graph_module, f"{node.name}_weight", weight.values)
        scale = add_tensor(self._graph_module, f"{node.name}_scale", weight.scale)
        self._weights.append((source, weight, values, scale))
        return values, scale

    def _edge(self, value: fx.Node, edge: Edge, reader: fx.Node, precision: Precision) -> fx.Node:
        if edge.factor is not None:
            key = edge.factor_name, "factor"
            if key not in self._made:
                with self._graph.inserting_after(value):
                    product = self._graph.call_function(aten.mul.Tensor, (value, value))
                with self._graph.inserting_before(product):
                    factor = add_tensor(self._graph_module, f"{reader.name}_factor", edge.factor)
                product.args = (value, factor)
                product.meta = _origin(reader)
                self._made[key] = product
            value = self._made[key]
        if edge.quantizer is None or precision != "int8":
            return value
        quantizer = edge.quantizer
        if isinstance(quantizer, DynamicRange):
            value, quantizer = self._divided(value, quantizer, reader), quantizer.unit
        key = quantizer.name, value.name
        if key not in self._made:
            with self._graph.inserting_after(value):
                made = self._graph.call_function(
                    aten.fake_quantize_per_tensor_affine.default,
                    (value, quantizer.scale, quantizer.zero_point, quantizer.low, quantizer.high),
                )
            made.meta = _origin(reader)
            self._made[key] = made
        return self._made[key]

    def _divided(self, value: fx.Node, quantizer: DynamicRange, reader: fx.Node) -> fx.Node:
        """Return a tensor divided by its largest magnitude, which is kept to rescale the layer's result."""
        key = quantizer.name, _DIVIDED
        if key not in self._made:
            made = divide_by_largest(self._graph, value, quantizer)
            for node in made:
                node.meta = _origin(reader)
            *_, self._made[quantizer.name, _LARGEST], self._made[key] = made
        return self._made[key]


def _origin(node: fx.Node) -> dict[str, object]:
    return {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}


def drop_unused(graph_module: fx.GraphModule) -> None:
    """Drop the tensors that no node reads any more, such as weights in floats."""
    read = {str(node.target) for node in graph_module.graph.nodes if node.op == "get_attr"}
    for name, module in list(graph_module.named_modules()):
        for store in (module._parameters, module._buffers):
            for key in list(store):
                if f"{name}.{key}".lstrip(".") not in read:
                    del store[key]
    _drop_empty(graph_module)


def _drop_empty(module: nn.Module) -> None:
    for name, child in list(module.named_children()):
        _drop_empty(child)
        if not (child._parameters or child._buffers or child._modules) and type(child) is nn.Module:
            del module._modules[name]


def weight_bytes(module: nn.Module) -> int:
    """Return the total size of a module's tensors in bytes, each counted once, as the target stores them."""
    tensors = {id(tensor): tensor.nbytes for tensor in (*module.parameters(), *module.buffers())}
    for layer in module.modules():
        if isinstance(layer, OwnFormLinear):
            tensors[id(layer.weight)] = layer.stored_bytes
    return sum(tensors.values())

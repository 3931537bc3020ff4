"""Quantized models as ONNX has them: pairs of QuantizeLinear and DequantizeLinear, which onnxruntime fuses.

A rounded tensor is such a pair, a weight in eight bits a DequantizeLinear. onnxruntime makes integer
convolutions and products of them where it has a kernel; elsewhere it computes what they say, in floats.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from torchport.targets.onnxruntime.library import library

# The least and the greatest integer of the grids that can be written.
GRIDS = ((0, 255), (-128, 127), (-127, 127))
_ROUNDED_WITH_MASK = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default
_ROUNDED = torch.ops.aten.fake_quantize_per_tensor_affine.default
# An exported program has no functions but torch's ops: this one stands for ONNX's, in no other graph.
_ops = torch.library.Library("torchport_onnx", "DEF")
_ops.define("dequantized(Tensor weight, Tensor scale, int axis) -> Tensor")
_ops.impl("dequantized", lambda weight, scale, axis: scale.new_empty(weight.shape), "Meta")
_DEQUANTIZED = torch.ops.torchport_onnx.dequantized.default


def rounded(source: Any, scale: float, zero_point: int, low: int, high: int) -> Any:
    """Write a tensor that is rounded to a grid.

    All grids are of ONNX's uint8, from 0 on, with the same numbers on them: onnxruntime's kernels take and
    give one type, and a layer may take one grid and give another.
    """
    op, ir = library("onnxscript").opset20, library("onnxscript").ir
    ends = [(end - zero_point) * scale for end in (low, high)]
    if high - low < 255:
        source = op.Clip(
            source, *[op.Constant(value=ir.tensor(end, dtype=ir.DataType.FLOAT)) for end in ends]
        )
    step = op.Constant(value=ir.tensor(scale, dtype=ir.DataType.FLOAT))
    zero = op.Constant(value=ir.tensor(zero_point - low, dtype=ir.DataType.UINT8))
    return op.DequantizeLinear(op.QuantizeLinear(source, step, zero), step, zero)


def dequantized(weight: Any, scale: Any, axis: int) -> Any:
    """Write a weight that is kept in integers."""
    return library("onnxscript").opset20.DequantizeLinear(weight, scale, axis=axis)


# What the exporter is to write for an op.
LOWERINGS: dict[Any, Callable[..., Any]] = {_ROUNDED: rounded, _DEQUANTIZED: dequantized}


def write_zero_points(model: Any) -> None:
    """Give each weight in integers its zero points, though they are 0, as tensors of its own.

    Where onnxruntime makes uint8 of int8, as it does on x86, it gives a weight without any the single one of
    a weight with one scale, and then refuses it; and it refuses two that share theirs, as the exporter has
    them.
    """
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if (
            node.op_type != "DequantizeLinear"
            or len(node.input) > 2
            or not initializers.keys() >= {*node.input}
        ):
            continue
        weight, scale = (initializers[name] for name in node.input)
        zero = library("onnx").TensorProto(
            name=f"{node.output[0]}_zero_point", data_type=weight.data_type, dims=scale.dims
        )
        zero.raw_data = bytes(math.prod(scale.dims))  # one each
        model.graph.initializer.append(zero)
        node.input.append(zero.name)


def is_quantized(model: bytes) -> bool:
    """Whether an ONNX model has weights or tensors in eight bits; names that say so do no harm."""
    return b"DequantizeLinear" in model


def write_quantized(graph: fx.Graph, weights: dict[str, torch.Tensor]) -> fx.Graph:
    """Return a graph that calls the ops of `LOWERINGS`, with its nodes' names.

    Args:
        graph: an island's, whose weights are inputs.
        weights: these by their names; what is written in another form is added.
    """
    return _Writer(graph, weights).write()


class _Writer:
    """Copies a graph, node by node, without the weights that it does not read."""

    def __init__(self, graph: fx.Graph, weights: dict[str, torch.Tensor]) -> None:
        self._source = graph
        self._weights = weights
        self._graph = fx.Graph()
        self._copies: dict[fx.Node, fx.Node] = {}

    def write(self) -> fx.Graph:
        """Return the graph."""
        for node in self._source.nodes:
            if node.target is _ROUNDED_WITH_MASK:
                continue  # what reads it is written in its place: nothing reads the mask
            self._copies[node] = made = (
                self._rounded(node)
                or self._weight(node)
                or self._linear(node)
                or (self._graph.node_copy(node, self._copies.__getitem__))
            )
            made.meta = dict(node.meta)
        self._graph.eliminate_dead_code()
        for node in list(self._graph.nodes):
            if node.op == "placeholder" and node.name in self._weights and not node.users:
                self._graph.erase_node(node)
                del self._weights[node.name]
        return self._graph

    def _rounded(self, node: fx.Node) -> fx.Node | None:
        rounded_node = node.args[0] if node.target is operator.getitem else None
        if not isinstance(rounded_node, fx.Node) or rounded_node.target is not _ROUNDED_WITH_MASK:
            return None
        return self._call(node, _ROUNDED, *fx.map_arg(rounded_node.args, self._copies.__getitem__))

    def _weight(self, node: fx.Node) -> fx.Node | None:
        """Write a weight in integers times its scale."""
        parts = self._integers_and_scale(node)
        if parts is None:
            return None
        integers, scale, axis = parts
        places = self._place(node, "integers", integers), self._place(node, "scale", scale)
        return self._call(node, _DEQUANTIZED, *places, axis)

    def _linear(self, node: fx.Node) -> fx.Node | None:
        """Write a linear layer as a product with its weight turned, which has an integer kernel."""
        if node.target is not torch.ops.aten.linear.default:
            return None
        source, weight = node.args[:2]
        bias = node.args[2] if len(node.args) > 2 else None
        assert isinstance(source, fx.Node)
        assert isinstance(weight, fx.Node)
        found = self._integers_and_scale(weight)
        if found is None:
            return None
        integers, scale, axis = found
        parts = (
            self._place(node, "turned", integers.t().contiguous()),
            self._place(node, "scale", scale),
            1 - axis,
        )
        name = f"{node.name}_weight"  # the weight's own name is that of the node that others may still read
        turned = self._graph.create_node("call_function", _DEQUANTIZED, parts, {}, name=name)
        turned.meta = weight.meta | {"val": weight.meta["val"].t()}
        args = self._copies[source], turned
        if bias is None:
            return self._call(node, torch.ops.aten.matmul.default, *args)
        assert isinstance(bias, fx.Node)
        product = self._graph.call_function(torch.ops.aten.matmul.default, args)
        product.meta = dict(node.meta)
        return self._call(node, torch.ops.aten.add.Tensor, product, self._copies[bias])

    def _integers_and_scale(self, node: fx.Node) -> tuple[torch.Tensor, torch.Tensor, int] | None:
        """Return a weight that is kept in integers, its scale, and the dimension that this goes along."""
        if node.target is not torch.ops.aten.mul.Tensor:
            return None
        copied, factor = node.args
        if not isinstance(copied, fx.Node) or copied.target is not torch.ops.aten._to_copy.default:
            return None
        integers = self._weights.get(str(copied.args[0]))
        scale = self._weights.get(str(factor))
        if integers is None or scale is None or integers.dtype not in (torch.int8, torch.uint8):
            return None
        sizes = [1] * (integers.dim() - scale.dim()) + list(scale.shape)
        axes = [dim for dim, size in enumerate(sizes) if size != 1]
        if (
            len(axes) > 1
            or len(sizes) > integers.dim()
            or any(sizes[dim] != integers.shape[dim] for dim in axes)
        ):
            return None
        return integers, scale.reshape(-1 if axes else ()), axes[0] if axes else 0

    def _place(self, node: fx.Node, what: str, value: torch.Tensor) -> fx.Node:
        """Return the input of a weight in the form that ONNX wants."""
        with self._graph.inserting_before(next(iter(self._graph.nodes))):
            place = self._graph.placeholder(f"{node.name}_{what}")
        self._weights[place.name] = value
        made = node.meta["val"].new_empty(value.shape, dtype=value.dtype)
        place.meta = node.meta | {"val": made}
        return place

    def _call(self, node: fx.Node, op: Any, *args: Any) -> fx.Node:
        made = self._graph.create_node("call_function", op, args, {}, name=node.name)
        made.meta = dict(node.meta)
        return made

"""Writes quantized models in ONNX's QDQ form: QuantizeLinear and DequantizeLinear, which onnxruntime fuses.

A fake-quantized tensor becomes such a pair, an 8-bit weight a DequantizeLinear. onnxruntime fuses them into
integer convolutions and matrix products where it has a kernel; elsewhere it computes them as floats.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from torchport.targets.onnxruntime.library import library

_TRANSPOSED = 6  # the place of this argument of a convolution
_MOST_BIAS = 2.0**30  # an int32, with room for a scale's own rounding
# The integer ranges of quantized tensors that can be written to ONNX.
QUANTIZED_RANGES = ((0, 255), (-128, 127), (-127, 127))
_FAKE_QUANTIZE_WITH_MASK = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default
# An exported program may call only torch ops: these stand for ONNX's, and no other graphs use them.
_ops = torch.library.Library("torchport_onnx", "DEF")
_ops.define("rounded(Tensor source, float scale, int zero_point, int low, int high) -> Tensor")
_ops.impl("rounded", lambda source, scale, zero_point, low, high: torch.empty_like(source), "Meta")
_ROUNDED = torch.ops.torchport_onnx.rounded.default
_ops.define("dequantized(Tensor weight, Tensor scale, int axis) -> Tensor")
_ops.impl("dequantized", lambda weight, scale, axis: scale.new_empty(weight.shape), "Meta")
_DEQUANTIZED = torch.ops.torchport_onnx.dequantized.default


def rounded(source: Any, scale: float, zero_point: int, low: int, high: int) -> Any:
    """Write a fake-quantized tensor as a QuantizeLinear and a DequantizeLinear.

    All ranges are shifted to uint8, starting at 0, and represent the same values: onnxruntime's kernels need
    the same type for input and output, while a layer's input and output ranges may differ.
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
    """Write an integer weight as a DequantizeLinear."""
    return library("onnxscript").opset20.DequantizeLinear(weight, scale, axis=axis)


# The lowerings that the exporter uses for these ops.
LOWERINGS: dict[Any, Callable[..., Any]] = {_ROUNDED: rounded, _DEQUANTIZED: dequantized}


def write_zero_points(model: Any) -> None:
    """Give each integer weight its own tensor of zero points, although they are all 0.

    Where onnxruntime converts int8 to uint8, as on x86, it adds a single zero point to a weight that has
    none, even with per-channel scales, and then rejects it; it also rejects two weights that share their zero
    points, as in the exporter's output.
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
        if weight.data_type == library("onnx").TensorProto.INT32:
            continue  # a bias
        zero = library("onnx").TensorProto(
            name=f"{node.output[0]}_zero_point", data_type=weight.data_type, dims=scale.dims
        )
        zero.raw_data = bytes(math.prod(scale.dims))  # one byte each
        model.graph.initializer.append(zero)
        node.input.append(zero.name)


def is_quantized(model: bytes) -> bool:
    """Whether an ONNX model has 8-bit weights or tensors; a match in a mere name does no harm."""
    return b"DequantizeLinear" in model


def write_quantized(graph: fx.Graph, weights: dict[str, torch.Tensor]) -> fx.Graph:
    """Return a graph that calls the ops of `LOWERINGS` for quantized values; node names are kept.

    Args:
        graph: an island's graph that takes its weights as inputs.
        weights: the weights by input name; changed to match the returned graph.
    """
    return _Writer(graph, weights).write()


class _Writer:
    """Copies a graph node by node, and drops weights that the copy does not read."""

    def __init__(self, graph: fx.Graph, weights: dict[str, torch.Tensor]) -> None:
        self._source = graph
        self._weights = weights
        self._graph = fx.Graph()
        self._copies: dict[fx.Node, fx.Node] = {}

    def write(self) -> fx.Graph:
        """Return the graph."""
        for node in self._source.nodes:
            if node.target is _FAKE_QUANTIZE_WITH_MASK:
                continue  # its getitem node is written in its place: nothing reads the mask
            self._copies[node] = made = (
                self._rounded(node)
                or self._weight(node)
                or self._linear(node)
                or self._product_with_bias(node)
                or self._convolution(node)
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
        fake_quantize = node.args[0] if node.target is operator.getitem else None
        if not isinstance(fake_quantize, fx.Node) or fake_quantize.target is not _FAKE_QUANTIZE_WITH_MASK:
            return None
        return self._call(node, _ROUNDED, *fx.map_arg(fake_quantize.args, self._copies.__getitem__))

    def _weight(self, node: fx.Node) -> fx.Node | None:
        """Write an integer weight and its scale as a DequantizeLinear."""
        parts = self._integers_and_scale(node)
        if parts is None:
            return None
        integers, scale, axis = parts
        places = (
            self._add_weight_input(node, "integers", integers),
            self._add_weight_input(node, "scale", scale),
        )
        return self._call(node, _DEQUANTIZED, *places, axis)

    def _linear(self, node: fx.Node) -> fx.Node | None:
        """Write a linear layer as a product with its transposed weight, which has an integer kernel."""
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
        turned = self._own_weight(node, weight, integers.t().contiguous(), scale, 1 - axis)
        args = self._copies[source], turned
        if bias is None:
            return self._call(node, torch.ops.aten.matmul.default, *args)
        assert isinstance(bias, fx.Node)
        product = self._graph.call_function(torch.ops.aten.matmul.default, args)
        product.meta = dict(node.meta)
        return self._call(node, torch.ops.aten.add.Tensor, product, self._copies[bias])

    def _product_with_bias(self, node: fx.Node) -> fx.Node | None:
        """Write a product and a sum, of which the product has an integer kernel; together they have none."""
        if node.target is not torch.ops.aten.addmm.default or node.kwargs:
            return None
        bias, source, weight = (self._copies[each] for each in node.args if isinstance(each, fx.Node))
        if weight.target is not _DEQUANTIZED:
            return None
        product = self._graph.call_function(torch.ops.aten.matmul.default, (source, weight))
        product.meta = dict(node.meta)
        return self._call(node, torch.ops.aten.add.Tensor, product, bias)

    def _convolution(self, node: fx.Node) -> fx.Node | None:
        """Write a convolution's bias in integers: with one in floats, it has no integer kernel."""
        if node.target is not torch.ops.aten.convolution.default or node.args[_TRANSPOSED]:
            return None
        source, weight, bias, *settings = node.args
        assert isinstance(source, fx.Node)
        assert isinstance(weight, fx.Node)
        step, found, added = _step_of(source), self._integers_and_scale(weight), self._weights.get(str(bias))
        if step is None or found is None or added is None or found[2] != 0:
            return None
        assert isinstance(bias, fx.Node)
        integers, scale, _ = found
        # A channel of tiny weights has a tiny scale, of which its bias may be too large a multiple for an
        # int32. With a larger scale it fits; what the weights lose is below the last bit of such a bias.
        needed = added.double().abs() / (scale.double() * step * _MOST_BIAS)
        grown = (needed if scale.dim() else needed.max()).ceil().clamp_min(1)
        if not bool(grown.isfinite().all()) or (not scale.dim() and grown > 1):
            return None
        scale = (scale.double() * grown).float()
        integers = (integers / grown.reshape(-1, *[1] * (integers.dim() - 1))).round().to(integers.dtype)
        steps = (scale.double() * step).float()
        multiples = (added.double() / steps.double()).round().to(torch.int32)
        parts = (
            self._own_weight(node, weight, integers, scale, 0),
            self._own_weight(node, bias, multiples, steps, 0),
        )
        return self._call(node, node.target, self._copies[source], *parts, *settings)

    def _own_weight(
        self, node: fx.Node, weight: fx.Node, integers: torch.Tensor, scale: torch.Tensor, axis: int
    ) -> fx.Node:
        """Add a weight for one reader: the weight's own node, which others may still read, keeps its name."""
        name = f"{node.name}_{weight.name}"
        places = [
            self._add_weight_input(node, f"{weight.name}_{what}", value)
            for what, value in (("integers", integers), ("scale", scale))
        ]
        made = self._graph.create_node("call_function", _DEQUANTIZED, (*places, axis), {}, name=name)
        made.meta = weight.meta | {"val": weight.meta["val"].new_empty(integers.shape)}
        return made

    def _integers_and_scale(self, node: fx.Node) -> tuple[torch.Tensor, torch.Tensor, int] | None:
        """Return an integer weight, its scale, and the scale's axis; None for any other node."""
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

    def _add_weight_input(self, node: fx.Node, what: str, value: torch.Tensor) -> fx.Node:
        """Add a graph input for a weight in the form that ONNX requires, and return its node."""
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


def _step_of(node: fx.Node) -> float | None:
    """Return the scale of a rounded tensor; None for any other node."""
    if node.target is not operator.getitem:
        return None
    rounding = node.args[0]
    assert isinstance(rounding, fx.Node)
    return float(rounding.args[1]) if rounding.target is _FAKE_QUANTIZE_WITH_MASK else None  # type: ignore[arg-type]  # a number

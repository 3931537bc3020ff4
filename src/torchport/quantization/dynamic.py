"""Dynamic quantization: weights in eight bits ahead of time, activations by their own range in each call.

A tensor is divided by its largest magnitude, per token for a linear layer and per sample for a convolution,
and rounded between -1 and 1; the layer's result is multiplied by that magnitude. So the quantizer has fixed
limits, as engines expect from static quantization, and no sample depends on the rest of the batch.
"""

from __future__ import annotations

from torch import fx, nn

from torchport.quantization.calibration import CalibrationData
from torchport.quantization.decisions import Decisions, DynamicRange, Edge, QuantizedWeight
from torchport.quantization.float_graph import capture_floats
from torchport.quantization.graph_quantization import GraphQuantization, plan_layers
from torchport.quantization.layers import is_move
from torchport.quantization.operands import operands
from torchport.quantization.options import QuantizationOptions
from torchport.quantization.products import largest_weight, weighted_products

# Ops whose results are never negative, whatever their inputs.
_NOT_NEGATIVE = frozenset(
    "aten.relu aten.relu6 aten.sigmoid aten.hardsigmoid aten.softmax aten._softmax aten.abs".split()
)
_AVERAGES = frozenset(
    """
    aten.avg_pool1d aten.avg_pool2d aten.avg_pool3d aten.adaptive_avg_pool1d aten.adaptive_avg_pool2d
    aten.adaptive_avg_pool3d aten.mean
    """.split()
)
_PADS = frozenset(("aten.pad", "aten.constant_pad_nd"))  # they may insert a negative constant


def quantize_dynamic(
    model: nn.Module,
    data: CalibrationData,
    options: QuantizationOptions,
    name: str,
    dynamic_shapes: object = None,
) -> GraphQuantization:
    """Capture a model; every product with a weight computes in eight bits unless an option says otherwise."""
    floats = capture_floats(model, data, name, dynamic_shapes)
    return plan_layers(model, floats, _decide(floats.graph_module, options), options)


def _decide(graph_module: fx.GraphModule, options: QuantizationOptions) -> Decisions:
    found = Decisions()
    most = largest_weight(options)
    for node, product, weight in weighted_products(graph_module):
        by_channel = product.channel_dim if options.weights == "per_channel" else None
        found.weights[node.name, product.weight] = QuantizedWeight.rounded(weight, by_channel, most)
        source = operands(node)[product.read]
        found.edges[node.name, product.read] = Edge(_range_of(source, node, weight.dim()))
    return found


def _range_of(source: fx.Node, reader: fx.Node, weight_dims: int) -> DynamicRange:
    """Return how a product's input is rounded: per token, or per sample for a convolution."""
    count = source.meta["val"].dim()
    dims: tuple[int, ...] = (-1,)
    if "conv" in str(reader.target):
        dims = tuple(range(1 if count == weight_dims else 0, count))
    return DynamicRange(f"{source.name}_{'_'.join(map(str, dims))}", dims, _is_not_negative(source))


def _is_not_negative(node: fx.Node) -> bool:
    """Whether all values of a node are known to be 0 or more, whatever the model's inputs."""
    if node.op != "call_function":
        return False
    name = str(node.target).rpartition(".")[0]
    if name in _NOT_NEGATIVE:
        return True
    if name in _PADS or not (name in _AVERAGES or is_move(node)):
        return False
    sources = operands(node)
    return bool(sources) and all(_is_not_negative(source) for source in sources)

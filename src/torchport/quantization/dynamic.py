"""Dynamic quantization: weights in eight bits beforehand, activations by their own range at each call.

A tensor is divided by its largest magnitude, each token of a linear layer and each sample of a convolution by
its own, and rounded between -1 and 1; the layer's result is multiplied by it. So the rounding has fixed
limits, which engines know from static quantization, and no sample depends on what else is in the batch.
"""

from __future__ import annotations

from torch import fx, nn

from torchport.quantization.calibration import CalibrationData
from torchport.quantization.decisions import Decisions, Edge, OwnRange, QuantizedWeight
from torchport.quantization.float_graph import capture_floats
from torchport.quantization.graph_quantization import GraphQuantization, plan_layers
from torchport.quantization.layers import is_move
from torchport.quantization.operands import operands
from torchport.quantization.options import QuantizationOptions
from torchport.quantization.products import largest_weight, weighted_products

# What they give is never negative, whatever they read.
_NOT_NEGATIVE = frozenset(
    "aten.relu aten.relu6 aten.sigmoid aten.hardsigmoid aten.softmax aten._softmax aten.abs".split()
)
_AVERAGES = frozenset(
    """
    aten.avg_pool1d aten.avg_pool2d aten.avg_pool3d aten.adaptive_avg_pool1d aten.adaptive_avg_pool2d
    aten.adaptive_avg_pool3d aten.mean
    """.split()
)
_PADS = frozenset(("aten.pad", "aten.constant_pad_nd"))  # they may put in a number of their own


def quantize_dynamic(
    model: nn.Module, data: CalibrationData, options: QuantizationOptions, name: str
) -> GraphQuantization:
    """Capture a model; every product with a weight computes in eight bits unless an option says otherwise."""
    floats = capture_floats(model, data, name)
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


def _range_of(source: fx.Node, reader: fx.Node, weight_dims: int) -> OwnRange:
    """Return how a product's input is rounded: by token, or by sample where it is an image."""
    count = source.meta["val"].dim()
    dims: tuple[int, ...] = (-1,)
    if "conv" in str(reader.target):
        dims = tuple(range(1 if count == weight_dims else 0, count))
    return OwnRange(f"{source.name}_{'_'.join(map(str, dims))}", dims, _is_not_negative(source))


def _is_not_negative(node: fx.Node) -> bool:
    """Whether all numbers of a node are known to be 0 or more, whatever the model reads."""
    if node.op != "call_function":
        return False
    name = str(node.target).rpartition(".")[0]
    if name in _NOT_NEGATIVE:
        return True
    if name in _PADS or not (name in _AVERAGES or is_move(node)):
        return False
    sources = operands(node)
    return bool(sources) and all(_is_not_negative(source) for source in sources)

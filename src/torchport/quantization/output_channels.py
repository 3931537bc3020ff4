"""Gives each output channel of a product's weight its own scale, where nncf gave one to each input channel.

nncf does so for `matmul` and `addmm`, whose weights it takes for transposed ones. A sum of integers over
input channels needs one scale for all of them: no engine has a kernel for the other kind.
"""

from __future__ import annotations

from torch import fx

from torchport.quantization.decisions import Decisions, QuantizedWeight
from torchport.quantization.options import QuantizationOptions
from torchport.quantization.products import largest_weight, weighted_products


def scale_output_channels(
    graph_module: fx.GraphModule, options: QuantizationOptions, decisions: Decisions
) -> None:
    """Round weights anew whose scales differ along another dimension than that of the output channels.

    Args:
        graph_module: the graph, in floats.
        options: how weights are rounded.
        decisions: what was decided, changed in place.
    """
    most = largest_weight(options)
    for node, product, weight in weighted_products(graph_module):
        place = node.name, product.weight
        found, edge = decisions.weights.get(place), decisions.edges.get((node.name, product.read))
        if found is None or (edge is not None and edge.factor is not None):
            continue  # of the latter, the graph does not have the smoothed weight
        if any(size > 1 for dim, size in enumerate(found.scale.shape) if dim != product.channel_dim):
            dim = product.channel_dim if options.weights == "per_channel" else None
            decisions.weights[place] = QuantizedWeight.rounded(weight, dim, most)

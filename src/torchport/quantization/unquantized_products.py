"""Quantizes products with weights that nncf leaves in floats, such as those of squeeze-and-excitation.

nncf always leaves them, although they read many weights for few multiplications, at four times the memory.
Here they are layers like any other: those that cost too much accuracy, or are no faster, go back to floats.
"""

from __future__ import annotations

import math
from statistics import mean

import torch
from torch import fx

from torchport.quantization.calibration import CalibrationData
from torchport.quantization.decisions import Decisions, Edge, QuantizedWeight, Quantizer
from torchport.quantization.operands import operands
from torchport.quantization.options import QuantizationOptions
from torchport.quantization.products import Product, largest_weight, weighted_products
from torchport.targets.node_by_node import NodeByNode

_MOST_ITEMS = 32  # used for ranges that are means of the items' minima and maxima
# The range estimators supported here. With others, these products stay in floats.
_MEAN, _WHOLE = "mean_min_max", "min_max"


def round_left_products(
    graph_module: fx.GraphModule, data: CalibrationData, options: QuantizationOptions, decisions: Decisions
) -> None:
    """Add decisions for products with weights that have none yet.

    Args:
        graph_module: the graph, in floats.
        data: the calibration data.
        options: how weights and activations are rounded.
        decisions: the decisions so far, extended in place.
    """
    left = [
        (node, product, weight)
        for node, product, weight in weighted_products(graph_module)
        if not {(node.name, product.read), (node.name, product.weight)}
        & {*decisions.edges, *decisions.weights}
    ]
    if not left or options.ranges not in (_MEAN, _WHOLE):
        return
    ranges = _ranges(graph_module, data, left, is_mean=options.ranges == _MEAN)
    most = largest_weight(options)
    for node, product, weight in left:
        source = operands(node)[product.read]
        quantizer = _quantizer(source.name, *ranges[source], options)
        if quantizer is None:
            continue
        by_channel = product.channel_dim if options.weights == "per_channel" else None
        decisions.weights[node.name, product.weight] = QuantizedWeight.rounded(weight, by_channel, most)
        decisions.edges[node.name, product.read] = Edge(quantizer)


def _ranges(
    graph_module: fx.GraphModule,
    data: CalibrationData,
    left: list[tuple[fx.Node, Product, torch.Tensor]],
    *,
    is_mean: bool,
) -> dict[fx.Node, tuple[float, float]]:
    """Return the minimum and maximum of each product's input: over all items, or averaged."""
    ends = _RangeRun(graph_module, {operands(node)[product.read] for node, product, _ in left})
    items = data.like_first(data.calibrating)
    with torch.no_grad():
        for index in items[:_MOST_ITEMS] if is_mean else items:
            with torch.random.fork_rng(devices=[]):
                ends.run(*data.load(index))
    if is_mean:
        return {node: (mean(ends.lows[node]), mean(ends.highs[node])) for node in ends.lows}
    return {node: (min(ends.lows[node]), max(ends.highs[node])) for node in ends.lows}


class _RangeRun(NodeByNode):
    """Runs a graph, and records the minimum and maximum of some nodes, item by item."""

    def __init__(self, graph_module: fx.GraphModule, wanted: set[fx.Node]) -> None:
        super().__init__(graph_module)
        self.lows: dict[fx.Node, list[float]] = {node: [] for node in wanted}
        self.highs: dict[fx.Node, list[float]] = {node: [] for node in wanted}

    def run_node(self, n: fx.Node) -> object:
        """Run a node, and record the range of its result."""
        value = super().run_node(n)
        if n in self.lows:
            assert isinstance(value, torch.Tensor)
            self.lows[n].append(float(value.min()))
            self.highs[n].append(float(value.max()))
        return value


def _quantizer(name: str, low: float, high: float, options: QuantizationOptions) -> Quantizer | None:
    """Return a quantizer for a range, unsigned if nothing is negative; None if it is empty or infinite."""
    low, high = min(low, 0.0), max(high, 0.0)
    if not math.isfinite(high - low) or low == high:
        return None
    if low == 0.0:
        return Quantizer(name, high / 255, 0, 0, 255)
    if options.activations == "asymmetric":
        scale = (high - low) / 255
        return Quantizer(name, scale, round(-low / scale), 0, 255)
    return Quantizer(name, max(-low, high) / 127, 0, -128, 127)

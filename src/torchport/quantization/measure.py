"""One pass over held-back data: the noise of each layer in isolation, and accumulated up to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from torchport.quantization.calibration import CalibrationData, Progress
from torchport.quantization.decisions import Decisions, DynamicRange
from torchport.quantization.layers import Layer, quantizer_before
from torchport.quantization.noise import Noise, ResultNoise
from torchport.quantization.operands import map_operands, operands
from torchport.targets.node_by_node import NodeByNode

_CACHE_LIMIT = 1 << 26  # bytes of results


@dataclass(slots=True)
class LayerMeasure:
    """The measurements of a layer."""

    isolated: Noise = field(default_factory=Noise)
    accumulated: Noise = field(default_factory=Noise)
    low: float | None = None
    high: float | None = None
    range: tuple[float, float] | None = None
    inputs: int = 0
    clipped: int = 0


@dataclass(slots=True)
class Measures:
    """The measurements of all layers, and of the model's results."""

    layers: dict[str, LayerMeasure]
    results: ResultNoise = field(default_factory=ResultNoise)


class _ObservedRun(NodeByNode):
    """Runs a graph, and passes the values of some nodes to a callback."""

    def __init__(
        self, graph_module: fx.GraphModule, nodes: Sequence[str], show: Callable[[fx.Node, Any, Any], None]
    ) -> None:
        super().__init__(graph_module)
        self._wanted = set(nodes)
        self._show = show

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and pass on its value."""
        value = super().run_node(n)
        if n.name in self._wanted:
            self._show(n, value, self.env)
        return value


def measure(
    floats: fx.GraphModule,
    quantized: fx.GraphModule,
    decisions: Decisions,
    layers: Sequence[Layer],
    judged: Collection[int],
    data: CalibrationData,
    progress: Progress,
) -> Measures:
    """Measure every layer on the held-back data.

    Args:
        floats, quantized: the graph before and after quantization, with the same node names.
        decisions: the decisions of the calibration.
        layers: the layers.
        judged: the indices of the results to compare.
        data: the data.
        progress: called for each item.
    """
    found = Measures({layer.name: LayerMeasure() for layer in layers})
    by_node = {layer.node: found.layers[layer.name] for layer in layers}
    expected: dict[str, torch.Tensor] = {}

    def record_float(node: fx.Node, value: Any, values: dict[fx.Node, Any]) -> None:
        tensor = _first_tensor(value)
        if tensor is None:
            return
        expected[node.name] = tensor
        _record_input(by_node[node.name], node, values, decisions)
        alone = _first_tensor(_run_isolated(node, values, decisions))
        if alone is not None:
            by_node[node.name].isolated.add(alone, tensor)

    def record_quantized(node: fx.Node, value: Any, values: dict[fx.Node, Any]) -> None:
        tensor = _first_tensor(value)
        if tensor is not None and node.name in expected:
            by_node[node.name].accumulated.add(tensor, expected.pop(node.name))

    nodes = [layer.node for layer in layers]
    with torch.no_grad():
        for done, index in enumerate(data.held_back):
            leaves = data.load(index)
            with torch.random.fork_rng(devices=[]):
                theirs = _ObservedRun(floats, nodes, record_float).run(*leaves)
            with torch.random.fork_rng(devices=[]):  # the same random numbers as above
                ours = _ObservedRun(quantized, nodes, record_quantized).run(*leaves)
            found.results.add(_judged(ours, judged), _judged(theirs, judged))
            expected.clear()
            progress("Measuring", done + 1, len(data.held_back))
    return found


class ExpectedResults:
    """The results of the float graph on the held-back data, cached up to a size limit.

    Args:
        floats: the graph.
        judged: the indices of the results to compare.
        data: the data.
    """

    def __init__(self, floats: fx.GraphModule, judged: Collection[int], data: CalibrationData) -> None:
        self._floats, self._judged, self._data = floats, judged, data
        self._kept: dict[int, list[object]] = {}
        self._bytes = 0

    @torch.no_grad()
    def compare(self, quantized: fx.GraphModule) -> ResultNoise:
        """Return the noise of a quantized graph's results compared with them."""
        noise = ResultNoise()
        for index in self._data.held_back:
            leaves = self._data.load(index)
            noise.add(self._run(quantized, leaves), self._of(index, leaves))
        return noise

    def _of(self, index: int, leaves: Sequence[Any]) -> list[object]:
        if index in self._kept:
            return self._kept[index]
        results = self._run(self._floats, leaves)
        self._bytes += sum(each.nbytes for each in results if isinstance(each, torch.Tensor))
        if self._bytes <= _CACHE_LIMIT:
            self._kept[index] = results
        return results

    def _run(self, graph: fx.GraphModule, leaves: Sequence[Any]) -> list[object]:
        with torch.random.fork_rng(devices=[]):  # every graph draws the same random numbers
            return _judged(graph(*leaves), self._judged)


def _judged(results: Sequence[object], places: Collection[int]) -> list[object]:
    return [each for place, each in enumerate(results) if place in places]


def _first_tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, (tuple, list)):
        value = value[0] if value else None
    return value if isinstance(value, torch.Tensor) and value.is_floating_point() else None


def _record_input(
    found: LayerMeasure, node: fx.Node, values: dict[fx.Node, Any], decisions: Decisions
) -> None:
    """Record the range of the first quantized operand, and how many of its elements are clipped."""
    for place, operand in enumerate(operands(node)):
        quantizer = quantizer_before(node, place, decisions)
        value = values.get(operand)
        if quantizer is None or not isinstance(value, torch.Tensor) or not value.numel():
            continue
        edge = decisions.edges.get((node.name, place))
        if edge is not None and edge.factor is not None:
            value = value * edge.factor
        low, high = (float(end) for end in torch.aminmax(value))
        found.low = low if found.low is None else min(found.low, low)
        found.high = high if found.high is None else max(found.high, high)
        found.inputs += value.numel()
        if isinstance(quantizer, DynamicRange):
            return  # nothing is clipped
        found.range = quantizer.range
        half = quantizer.scale / 2
        found.clipped += int(((value < found.range[0] - half) | (value > found.range[1] + half)).sum())
        return


def _run_isolated(node: fx.Node, values: dict[fx.Node, Any], decisions: Decisions) -> Any:
    """Return the result of a layer in eight bits on its inputs from the float model."""

    def rounded(place: int, operand: fx.Node) -> Any:
        weight = decisions.weights.get((node.name, place))
        if weight is not None:
            return weight.floats
        value = values[operand]
        edge = decisions.edges.get((node.name, place))
        if edge is not None and edge.factor is not None:
            value = value * edge.factor
        quantizer = quantizer_before(node, place, decisions)
        return quantizer(value) if quantizer is not None and value.is_floating_point() else value

    args, kwargs = map_operands(node, rounded)

    def number(value: Any) -> Any:
        return values[value] if isinstance(value, fx.Node) else value

    args, kwargs = fx.node.map_aggregate((args, kwargs), number)
    bias = decisions.biases.get(node.name)
    if bias is not None:
        args = (*args[:2], bias, *args[3:])
    assert callable(node.target)
    return node.target(*args, **kwargs)

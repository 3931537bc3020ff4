"""Runs a model's graph node by node over many items in lockstep, in floats and quantized side by side.

Layers are quantized on the way: every item reaches a layer before any goes on, so that in one pass over the
data each layer is fitted to its inputs from the layers that are quantized already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx, nn

from torchport import capture
from torchport.capture import quiet_torch
from torchport.errors import CaptureError
from torchport.quantization.calibration import call_of
from torchport.quantization.float_graph import functional, judged_results, writes
from torchport.quantization.graph_tensors import tensor_of
from torchport.quantization.input_moments import InputMoments
from torchport.quantization.weight_rounding import Moments
from torchport.structure import flatten_call
from torchport.targets.node_by_node import NodeByNode
from torchport.torch_private import OpOverload

_LINEAR, _EMBEDDING = "aten.linear.default", "aten.embedding.default"
_PLACES = {_LINEAR: 1, _EMBEDDING: 0}  # the index of the weight among the arguments


@dataclass(frozen=True, slots=True, eq=False)
class ModelGraph:
    """A model's graph, in float32, and the items to run it on.

    Args:
        graph_module: maps the input tensors to the result tensors.
        weights: the path of a layer, by the first node that reads its weight.
        items: the tensors of each item.
        results: the indices of the results that are judged: all but caches.
    """

    graph_module: fx.GraphModule
    weights: Mapping[fx.Node, str]
    items: Sequence[Sequence[torch.Tensor]]
    results: Collection[int]


def weight_place(node: fx.Node) -> int:
    """Return the index of a layer's weight among its arguments."""
    return _PLACES[str(node.target)]


def graph_of(model: nn.Module, items: Sequence[object], paths: Iterable[str]) -> ModelGraph | None:
    """Capture a model for the most common shapes among some items; return None if it cannot be captured.

    Args:
        model: the model, in float32.
        items: the inputs; items of other shapes are left out.
        paths: the paths of its layers.
    """
    calls = [call_of(item) for item in items]
    leaves = [tuple(flatten_call(*call).leaves) for call in calls]
    shapes = [tuple((each.shape, each.dtype) for each in tensors) for tensors in leaves]
    if not shapes:
        return None
    commonest = Counter(shapes).most_common(1)[0][0]
    try:
        captured = capture.export(model, *calls[shapes.index(commonest)])
    except CaptureError:
        return None
    program = captured.program
    if any(_is_in_place(node) for node in program.graph.nodes):
        try:
            program = functional(program)
        except Exception:  # noqa: BLE001  # torch raises many kinds
            return None
        if writes(program):
            return None  # the writes of one item's run would affect the other items, and the model
    with quiet_torch():
        graph_module = program.module(check_guards=False)
    assert isinstance(graph_module, fx.GraphModule)
    taken = [tensors for tensors, shape in zip(leaves, shapes, strict=True) if shape == commonest]
    return ModelGraph(graph_module, _weights(graph_module, model, paths), taken, judged_results(captured))


def _is_in_place(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _weights(graph_module: fx.GraphModule, model: nn.Module, paths: Iterable[str]) -> dict[fx.Node, str]:
    """Return the first node that reads each layer's weight."""
    stored = {_key(model.get_parameter(f"{path}.weight" if path else "weight")): path for path in paths}
    found: dict[fx.Node, str] = {}
    for node in graph_module.graph.nodes:
        place = _PLACES.get(str(node.target))
        weight = None if place is None else tensor_of(graph_module, node.args[place])
        path = None if weight is None else stored.get(_key(weight))
        # Layers may share a weight: only the first that reads it counts, the others follow it.
        if path is not None and path not in found.values():
            found[node] = path
    return found


def _key(tensor: torch.Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tuple(tensor.shape)


def run_in_lockstep(
    graph: ModelGraph,
    quantize: Callable[[str, Moments | None], torch.Tensor | None],
    fitted: Collection[str],
) -> None:
    """Run all items through a graph, and quantize each layer when they reach it.

    Args:
        graph: the graph.
        quantize: takes a layer's path, and its moments if it is fitted to data; returns the weight to
            continue with, or None to keep the layer as it is.
        fitted: the paths of the linear layers that are fitted to data; the run stops after the last of them.
    """
    runs = [_Run(graph.graph_module, tensors) for tensors in graph.items]
    nodes = list(graph.graph_module.graph.nodes)
    left = set(fitted)
    known = _MomentsOfLayers(runs)
    with torch.no_grad():
        for node, dead in zip(nodes, _last_uses(nodes), strict=True):
            for run in runs:
                run.step_floats(node)
            path = graph.weights.get(node)
            if path is not None:
                # A lookup in a linear layer's weight says nothing about the layer's inputs.
                is_fitted = path in fitted and str(node.target) == _LINEAR
                weight = quantize(path, known.of(node) if is_fitted else None)
                left.discard(path)
                if not left:
                    return
                if weight is not None:
                    for run in runs:
                        run.replace_weight(node, weight)
            for run in runs:
                run.step_quantized(node)
                run.forget(dead)


class _MomentsOfLayers:
    """Computes the moments of linear layers over all items; layers with the same input share its moments."""

    def __init__(self, runs: Sequence[_Run]) -> None:
        self._runs = runs
        self._source: object = None
        self._inputs: InputMoments | None = None

    def of(self, node: fx.Node) -> Moments:
        """Return the moments of a layer whose float results are available already."""
        source, weight, bias = (*node.args, None)[:3]
        assert isinstance(source, fx.Node)
        assert isinstance(weight, fx.Node)
        if source is not self._source or self._inputs is None:
            self._source = source
            self._inputs = InputMoments([run.quantized[source] for run in self._runs])
        wanted = [
            run.floats[node] - (run.floats[bias] if isinstance(bias, fx.Node) else 0.0) for run in self._runs
        ]
        return self._inputs.of(self._runs[0].floats[weight], wanted)


def _last_uses(nodes: Sequence[fx.Node]) -> Iterator[list[fx.Node]]:
    """Yield, for each node, the nodes whose values are dead after it."""
    last: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        for each in (node, *node.all_input_nodes):
            last[each] = node
    dead: dict[fx.Node, list[fx.Node]] = {}
    for node, reader in last.items():
        dead.setdefault(reader, []).append(node)
    yield from (dead.get(node, []) for node in nodes)


class _Run:
    """One item's run through a graph: in floats, and with the layers quantized so far."""

    def __init__(self, graph_module: fx.GraphModule, tensors: Sequence[torch.Tensor]) -> None:
        self._floats, self._quantized = (
            NodeByNode(graph_module, garbage_collect_values=False) for _ in range(2)
        )
        for each in (self._floats, self._quantized):
            # Copies: a graph may write to its inputs.
            each.args_iter = iter([tensor.clone() for tensor in tensors])

    @property
    def floats(self) -> dict[fx.Node, torch.Tensor]:
        """The values of the float model, by node."""
        return self._floats.env

    @property
    def quantized(self) -> dict[fx.Node, torch.Tensor]:
        """The values of the quantized model, by node."""
        return self._quantized.env

    def replace_weight(self, node: fx.Node, weight: torch.Tensor) -> None:
        """Replace a node's weight in the quantized model."""
        read = node.args[weight_place(node)]
        assert isinstance(read, fx.Node)
        self._quantized.env[read] = weight

    def step_floats(self, node: fx.Node) -> None:
        """Run a node of the float model."""
        if node.op != "output":
            self._floats.env[node] = self._floats.run_node(node)

    def step_quantized(self, node: fx.Node) -> None:
        """Run a node of the quantized model."""
        if node.op != "output":
            self._quantized.env[node] = self._quantized.run_node(node)

    def forget(self, nodes: Iterable[fx.Node]) -> None:
        """Drop values that no later node reads."""
        for each in (self._floats, self._quantized):
            for node in nodes:
                each.env.pop(node, None)

"""Equalizes channel ranges between two layers: scales the first one's outputs, and compensates in the second.

A channel that is a hundred times larger than its neighbours leaves them only a hundredth of the 8-bit steps.
The model's function is unchanged, so any of its layers may still compute in floats.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from torchport.quantization.calibration import CalibrationData, Progress
from torchport.quantization.graph_tensors import add_tensor, is_trained, tensor_of
from torchport.targets.node_by_node import NodeByNode

_CONVOLUTIONS = frozenset(f"aten.conv{dims}d.{form}" for dims in (1, 2, 3) for form in ("default", "padding"))
_LINEAR = "aten.linear.default"
# Ops that commute with scaling each channel by a positive factor.
_POINTWISE = frozenset("aten.relu aten.leaky_relu aten.dropout aten.clone aten.contiguous".split())
_POOLS = frozenset(
    f"aten.{name}{dims}d"
    for name in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "upsample_nearest")
    for dims in (1, 2, 3)
)
_LARGEST = 100.0  # limit of the factor that a channel is scaled by


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """Two layers; the second reads the first one's result, possibly through ops that commute with scaling."""

    first: fx.Node
    second: fx.Node

    @property
    def channel_dim(self) -> int:
        """The channel dimension of the first layer's result, counted from the end."""
        name = str(self.first.target)
        return -1 if name == _LINEAR else -1 - next(int(digit) for digit in name if digit.isdigit())


def equalize(graph_module: fx.GraphModule, data: CalibrationData, progress: Progress) -> int:
    """Equalize channel ranges in a graph, and return the number of layer pairs.

    Args:
        graph_module: the graph, modified in place.
        data: the calibration data, on which channel ranges are measured.
        progress: called for each item.
    """
    pairs = _find_pairs(graph_module)
    if not pairs:
        return 0
    largest = _ChannelMaximaRun(graph_module, pairs)
    items = data.like_first(data.calibrating)
    with torch.no_grad():
        for done, index in enumerate(items):
            with torch.random.fork_rng(devices=[]):
                largest.run(*data.load(index))
            progress("Equalizing", done + 1, len(items))
    for pair in pairs:
        _apply(graph_module, pair, largest.found[pair.first])
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()
    return len(pairs)


class _ChannelMaximaRun(NodeByNode):
    """Runs a graph, and records the largest magnitude of each channel in the results of first layers."""

    def __init__(self, graph_module: fx.GraphModule, pairs: list[_Pair]) -> None:
        super().__init__(graph_module)
        self._dims = {pair.first: pair.channel_dim for pair in pairs}
        self.found: dict[fx.Node, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> object:
        """Run a node, and record the range of its result."""
        value = super().run_node(n)
        if n in self._dims:
            assert isinstance(value, torch.Tensor)
            sizes = value.abs().movedim(self._dims[n], 0).flatten(1).amax(1)
            self.found[n] = torch.maximum(self.found[n], sizes) if n in self.found else sizes
        return value


def _find_pairs(graph_module: fx.GraphModule) -> list[_Pair]:
    found = []
    for first in graph_module.graph.nodes:
        second = _reader(first) if _is_first(graph_module, first) else None
        if second is not None and _is_second(graph_module, first, second):
            found.append(_Pair(first, second))
    return found


def _is_first(graph_module: fx.GraphModule, node: fx.Node) -> bool:
    if str(node.target) not in (*_CONVOLUTIONS, _LINEAR) or node.kwargs:
        return False
    return all(value is None or _is_own(graph_module, value) for value in node.args[1:3])


def _is_second(graph_module: fx.GraphModule, first: fx.Node, second: fx.Node) -> bool:
    kinds = {str(node.target) == _LINEAR for node in (first, second)}
    if len(kinds) > 1 or not _is_first(graph_module, second):
        return False
    groups = second.args[6] if len(second.args) > 6 else 1  # of a convolution
    return isinstance(groups, int) and groups == 1


def _is_own(graph_module: fx.GraphModule, value: object) -> bool:
    """Whether a value is a tensor of the graph that only one node reads, and that shares no storage."""
    tensor = tensor_of(graph_module, value)
    if tensor is None or not isinstance(value, fx.Node) or len(value.users) != 1:
        return False
    others = (
        tensor_of(graph_module, node)
        for node in graph_module.graph.nodes
        if node.op == "get_attr" and node is not value
    )
    place = tensor.untyped_storage().data_ptr()
    return not any(other is not None and other.untyped_storage().data_ptr() == place for other in others)


def _reader(node: fx.Node) -> fx.Node | None:
    """Return the only layer that reads a node, possibly through ops that commute with scaling."""
    is_linear = str(node.target) == _LINEAR
    while len(node.users) == 1:
        [user] = node.users
        if user.op != "call_function" or user.args[:1] != (node,):
            return None
        name = str(user.target).rpartition(".")[0]
        if str(user.target) in (*_CONVOLUTIONS, _LINEAR):
            return user
        if name not in _POINTWISE and (is_linear or name not in _POOLS):
            return None
        node = user
    return None


def _apply(graph_module: fx.GraphModule, pair: _Pair, sizes: torch.Tensor) -> None:
    """Divide the outputs of the first layer, and multiply the weight of the second."""
    weight = tensor_of(graph_module, pair.second.args[1])
    assert weight is not None
    steps = weight.abs().transpose(0, 1).flatten(1).amax(1)
    factor = (sizes.double() / steps).sqrt()
    known = factor.isfinite() & (factor > 0)
    if not bool(known.any()):
        return
    factor = torch.where(known, factor / factor[known].median(), 1.0).clamp(1 / _LARGEST, _LARGEST).float()
    _scale(graph_module, pair.first, 1, 1 / factor, 0)
    _scale(graph_module, pair.first, 2, 1 / factor, 0)
    _scale(graph_module, pair.second, 1, factor, 1)


def _scale(graph_module: fx.GraphModule, layer: fx.Node, place: int, factor: torch.Tensor, dim: int) -> None:
    """Multiply a weight or a bias of a layer, along a dimension."""
    source = layer.args[place] if len(layer.args) > place else None
    tensor = tensor_of(graph_module, source)
    if tensor is None:
        return
    shape = [-1 if each == dim else 1 for each in range(tensor.dim())]
    with graph_module.graph.inserting_before(layer):
        new = add_tensor(
            graph_module,
            f"{layer.name}_equalized_{place}",
            tensor * factor.reshape(shape),
            trained=is_trained(graph_module, source),
        )
    layer.update_arg(place, new)

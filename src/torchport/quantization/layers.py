"""The layers of a quantized graph: the ops that compute in eight bits, and their names."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import fx

from torchport.capture import module_path, modules_around
from torchport.errors import QuantizationError, nearest
from torchport.quantization.decisions import Decisions, DynamicRange, Quantizer
from torchport.quantization.operands import operands
from torchport.records.quantization import Precision

# Ops that move or select elements, so that their results stay on the grid of their inputs.
_MOVES = frozenset(
    """
    aten.view aten.reshape aten.flatten aten.transpose aten.permute aten.squeeze aten.unsqueeze aten.expand
    aten.slice aten.select aten.cat aten.stack aten.split aten.split_with_sizes aten.chunk aten.max_pool1d
    aten.max_pool2d aten.max_pool3d aten.relu aten.dropout aten.clone aten.contiguous aten.pad
    aten.constant_pad_nd aten.t aten.unbind aten.index_select aten.pixel_shuffle aten.repeat aten._unsafe_view
    aten.unflatten aten.roll aten.flip aten.upsample_nearest2d aten.alias aten.detach aten.movedim
    """.split()
)


@dataclass(frozen=True, slots=True)
class Layer:
    """An op that computes in eight bits.

    Args:
        node: the node's name in the graph.
        name: the layer's name: the module's path, with the op where a module calls several.
        op: the op.
        has_weight: whether it has a weight in eight bits.
    """

    node: str
    name: str
    op: str
    has_weight: bool


# Modules whose products compute in eight bits, but not the gates between them, which are on few elements.
_RECURRENT = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")


def tidy_recurrent(graph: fx.Graph, decisions: Decisions) -> None:
    """Leave gates of recurrent layers in floats, and their biases unchanged, which their steps share."""
    for node in graph.nodes:
        if node.op != "call_function" or not _is_recurrent(node):
            continue
        decisions.biases.pop(node.name, None)
        if not _has_weight(node, decisions) and not is_move(node):
            for place in range(len(operands(node))):
                decisions.edges.pop((node.name, place), None)


def _has_weight(node: fx.Node, decisions: Decisions) -> bool:
    return any((node.name, place) in decisions.weights for place in range(len(operands(node))))


def _is_recurrent(node: fx.Node) -> bool:
    modules = modules_around(node)
    return bool(modules) and modules[-1][1] in _RECURRENT


def is_move(node: fx.Node) -> bool:
    """Whether a node only moves or selects elements."""
    name = str(node.target)
    return "getitem" in name or name.rpartition(".")[0] in _MOVES


def find_layers(graph: fx.Graph, decisions: Decisions) -> list[Layer]:
    """Return the ops that compute on quantized inputs or weights, in graph order."""
    found: list[tuple[fx.Node, bool]] = []
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        has_weight = _has_weight(node, decisions)
        reads = any(quantizer_before(node, place, decisions) for place in range(len(operands(node))))
        if has_weight or (reads and not is_move(node) and not _is_recurrent(node)):
            found.append((node, has_weight))
    names = _names([node for node, _ in found])
    return [
        Layer(node.name, name, str(node.target), has_weight)
        for (node, has_weight), name in zip(found, names, strict=True)
    ]


def quantizer_before(node: fx.Node, place: int, decisions: Decisions) -> Quantizer | DynamicRange | None:
    """Return the quantizer of a node's operand: on its edge, or upstream of ops that only move elements."""
    while True:
        edge = decisions.edges.get((node.name, place))
        if edge is not None and edge.quantizer is not None:
            return edge.quantizer
        source = operands(node)[place]
        if source.op != "call_function" or not is_move(source) or not operands(source):
            return None
        node, place = source, 0


def _names(nodes: list[fx.Node]) -> list[str]:
    """Name each node by its module, with the op if a module has several, and a number for repeated calls."""
    paths = [module_path(node) for node in nodes]
    ops = [str(node.target).split(".")[1] for node in nodes]
    kinds = Counter(path for path, _ in set(zip(paths, ops, strict=True)))
    written = [
        path if path and kinds[path] == 1 else "/".join(filter(None, (path, op)))
        for path, op in zip(paths, ops, strict=True)
    ]
    again = Counter(written)
    seen: Counter[str] = Counter()
    names = []
    for name in written:
        seen[name] += 1
        names.append(name if again[name] == 1 else f"{name}#{seen[name]}")
    return names


def overridden(
    layers: Iterable[Layer], overrides: Mapping[str, Precision], where: str
) -> dict[str, tuple[Precision, str]]:
    """Return the precision of each layer that a pattern matches, by its name, with the pattern.

    Raises:
        QuantizationError: a pattern matches no layer.
    """
    layers = list(layers)
    found: dict[str, tuple[Precision, str]] = {}
    for pattern, precision in overrides.items():
        matching = [layer.name for layer in layers if _matches(layer, pattern)]
        if not matching:
            known = [layer.name for layer in layers] + [layer.op for layer in layers]
            raise QuantizationError(
                f"the override {pattern!r} matches no layer", where=where, remedy=nearest(pattern, known)
            )
        found |= dict.fromkeys(matching, (precision, pattern))
    return found


def _matches(layer: Layer, pattern: str) -> bool:
    forms = (layer.name, layer.name.split("#")[0], layer.op, layer.op.rpartition(".")[0])
    return any(fnmatch.fnmatchcase(form, pattern) for form in forms)

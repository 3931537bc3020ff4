"""Stores an island in a folder, to be built by a compiler in another process, and the artefact."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy
import torch
from torch import fx

from torchport.errors import TargetError
from torchport.records import JSON, TensorSpec, read_json
from torchport.targets.graph_json import decode_graph, encode_graph, value_numbers
from torchport.targets.node_by_node import NodeByNode
from torchport.targets.safetensors_file import read_safetensors, restored, storable, write_safetensors
from torchport.targets.target import Artifact, Island
from torchport.torch_private import FakeTensorMode, extract_tensor_metadata, tree_map_only

GRAPH, WEIGHTS = "island.json", "weights.safetensors"
BUILT, PAYLOAD = "artifact.json", "payload.bin"
_NOTES = "torchport_"  # prefix of the keys that targets add to `node.meta`


def write_island(island: Island, folder: Path) -> None:
    """Write an island to a folder.

    Raises:
        TargetError: it has something that cannot be stored.
    """
    graph = encode_graph(island.graph_module.graph)
    names = graph["tensors"]  # a list, which the type of JSON does not say
    tensors = {name: getattr(island.graph_module, name) for name in names}  # type: ignore[attr-defined]
    weights, complexes = storable(tensors)
    notes = {str(number): _notes(node) for number, node in value_numbers(island.graph_module.graph).items()}
    data = {
        "name": island.name,
        **graph,
        "complexes": complexes,
        "input_specs": [spec.to_json() for spec in island.inputs],
        "output_specs": [spec.to_json() for spec in island.outputs],
        "notes": {number: noted for number, noted in notes.items() if noted},
    }
    (folder / GRAPH).write_text(json.dumps(data, indent=1))
    write_safetensors(weights, folder / WEIGHTS)


def _notes(node: fx.Node) -> dict[str, object]:
    """Return the targets' notes on a node, without tensors, which are only for verdicts given already."""
    return {
        key: value
        for key, value in node.meta.items()
        if key.startswith(_NOTES) and not isinstance(value, torch.Tensor)
    }


def read_island(folder: Path) -> Island:
    """Return the island that was written to a folder.

    Raises:
        TargetError, RecordError: the files are malformed, or call an op that is not permitted.
    """
    data = read_json(folder / GRAPH)
    if not isinstance(data, Mapping):
        raise TargetError("the island's file is malformed", where=str(folder / GRAPH))
    weights = read_safetensors(numpy.fromfile(folder / WEIGHTS, dtype=numpy.uint8))
    graph_module = decode_graph(data, restored(weights, data.get("complexes")))
    inputs, outputs = _specs(data.get("input_specs")), _specs(data.get("output_specs"))
    _describe(graph_module, inputs)
    noted = data.get("notes")
    nodes = value_numbers(graph_module.graph)
    for number, notes in noted.items() if isinstance(noted, Mapping) else ():
        if not number.isdigit() or int(number) not in nodes or not isinstance(notes, Mapping):
            raise TargetError(
                "the island's file has notes on a node that is not in its graph", where=str(folder / GRAPH)
            )
        own = {key: _tuples(value) for key, value in notes.items() if key.startswith(_NOTES)}
        nodes[int(number)].meta.update(own)
    return Island(str(data.get("name")), graph_module, inputs, outputs)


def _specs(data: JSON) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec.from_json(spec) for spec in (data if isinstance(data, list) else [None]))


def _tuples(value: object) -> object:
    """Return a note with its lists, as JSON stores tuples, turned back into tuples."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class _Shapes(NodeByNode):
    """Sets each node's `val` and `tensor_meta`, as a capture does: targets' compilers read both."""

    def __init__(self, graph_module: fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(graph_module)
        self._mode = mode

    def run_node(self, n: fx.Node) -> object:
        """Run a node on fake tensors."""
        value = super().run_node(n)
        if n.op == "get_attr" and isinstance(value, torch.Tensor):
            value = self._mode.from_tensor(value)
        if n.op != "output":
            n.meta["val"] = value
            n.meta["tensor_meta"] = tree_map_only(torch.Tensor, extract_tensor_metadata, value)
        return value


def _describe(graph_module: fx.GraphModule, inputs: tuple[TensorSpec, ...]) -> None:
    with FakeTensorMode() as mode, torch.no_grad():
        leaves = [_fake(spec) for spec in inputs]
        _Shapes(graph_module, mode).run(*leaves)


def _fake(spec: TensorSpec) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if not spec.order:
        return torch.empty(spec.shape, dtype=dtype)
    inverse = [spec.order.index(dim) for dim in range(len(spec.order))]
    return torch.empty([spec.shape[dim] for dim in spec.order], dtype=dtype).permute(inverse)


def write_artifact(artifact: Artifact, folder: Path) -> None:
    """Write an artefact to a folder; the JSON is written last, so that it exists only if all else does."""
    artifact.payload.tofile(folder / PAYLOAD)
    (folder / BUILT).write_text(json.dumps(artifact.properties, indent=1))


def read_artifact(folder: Path) -> Artifact:
    """Return the artefact that was written to a folder.

    Raises:
        TargetError, RecordError: the files are malformed.
    """
    properties = read_json(folder / BUILT)
    if not isinstance(properties, dict):
        raise TargetError("what the compiler built has no properties", where=str(folder / BUILT))
    return Artifact(numpy.fromfile(folder / PAYLOAD, dtype=numpy.uint8), properties)

"""An island in a folder: what a compiler in another process builds from, and what it built."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import safetensors.torch
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.utils._pytree import tree_map_only

from torchport.errors import TargetError
from torchport.records import TensorSpec
from torchport.targets.op_calls import decode, encode, encode_call, find_op
from torchport.targets.safetensors_file import write_safetensors
from torchport.targets.target import Artifact, Island

GRAPH, WEIGHTS = "island.json", "weights.safetensors"
BUILT, PAYLOAD = "artifact.json", "payload.bin"
_NOTES = "torchport_"  # what targets leave in `node.meta` begins with it


def write_island(island: Island, folder: Path) -> None:
    """Write an island down.

    Raises:
        TargetError: it holds what cannot be written down.
    """
    graph = island.graph_module.graph
    weights: dict[str, torch.Tensor] = {}
    attributes: dict[str, str] = {}
    complexes: list[str] = []
    calls = []
    for node in graph.nodes:
        if node.op == "get_attr":
            attributes[node.name] = str(node.target)
            weights[str(node.target)] = _stored(
                getattr(island.graph_module, str(node.target)), node, complexes
            )
        elif node.op == "call_function":
            calls.append(encode_call(node))
    data = {
        "name": island.name,
        "inputs": [node.name for node in graph.nodes if node.op == "placeholder"],
        "attributes": attributes,
        "complexes": complexes,
        "calls": calls,
        "outputs": encode(graph.output_node().args[0]),
        "input_specs": [spec.to_json() for spec in island.inputs],
        "output_specs": [spec.to_json() for spec in island.outputs],
        "notes": {node.name: _notes(node) for node in graph.nodes if _notes(node)},
    }
    (folder / GRAPH).write_text(json.dumps(data, indent=1))
    write_safetensors(weights, folder / WEIGHTS)


def _stored(tensor: torch.Tensor, node: fx.Node, complexes: list[str]) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        raise TargetError(f"a weight of the layout {tensor.layout} cannot be written down", where=node.name)
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        complexes.append(str(node.target))
        tensor = torch.view_as_real(tensor)
    return tensor.contiguous()


def _notes(node: fx.Node) -> dict[str, object]:
    """Return what targets noted of a node; tensors among it are for verdicts, which were given before."""
    return {
        key: value
        for key, value in node.meta.items()
        if key.startswith(_NOTES) and not isinstance(value, torch.Tensor)
    }


def read_island(folder: Path) -> Island:
    """Return the island that was written to a folder."""
    data = json.loads((folder / GRAPH).read_text())
    weights = safetensors.torch.load_file(folder / WEIGHTS)
    weights.update({name: torch.view_as_complex(weights[name]) for name in data["complexes"]})
    graph = fx.Graph()
    nodes: dict[str, object] = {name: graph.placeholder(name) for name in data["inputs"]}
    for name, attribute in data["attributes"].items():
        nodes[name] = graph.create_node("get_attr", attribute, name=name)
    for call in data["calls"]:
        args = tuple(decode(argument, nodes) for argument in call["args"])
        kwargs = {key: decode(argument, nodes) for key, argument in call["kwargs"].items()}
        op = find_op(call["op"])
        nodes[call["name"]] = graph.create_node("call_function", op, args, kwargs, call["name"])  # type: ignore[arg-type]
    graph.output(tuple(decode(data["outputs"], nodes)))  # type: ignore[arg-type]
    graph_module = fx.GraphModule(weights, graph)
    inputs = tuple(TensorSpec.from_json(spec) for spec in data["input_specs"])
    outputs = tuple(TensorSpec.from_json(spec) for spec in data["output_specs"])
    _describe(graph_module, inputs)
    for name, notes in data["notes"].items():
        node = nodes[name]
        assert isinstance(node, fx.Node)
        node.meta.update({key: _tuples(value) for key, value in notes.items()})
    return Island(data["name"], graph_module, inputs, outputs)


def _tuples(value: object) -> object:
    """Return a note with tuples again, for which JSON has lists."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class _Shapes(fx.Interpreter):
    """Notes at each node what it computes, as a capture does: targets' compilers read both notes."""

    def __init__(self, graph_module: fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(graph_module)
        self._mode = mode

    def run_node(self, n: fx.Node) -> object:
        """Run a node on fake tensors."""
        value = super().run_node(n)
        if n.op == "get_attr":
            assert isinstance(value, torch.Tensor)
            value = self._mode.from_tensor(value)
        if n.op != "output":
            n.meta["val"] = value
            n.meta["tensor_meta"] = tree_map_only(torch.Tensor, _extract_tensor_metadata, value)
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
    """Write down what was built; the JSON comes last, so that it is there only if all is."""
    artifact.payload.tofile(folder / PAYLOAD)
    (folder / BUILT).write_text(json.dumps(artifact.properties, indent=1))


def read_artifact(folder: Path) -> Artifact:
    """Return what was built."""
    properties = json.loads((folder / BUILT).read_text())
    return Artifact(numpy.fromfile(folder / PAYLOAD, dtype=numpy.uint8), properties)

"""Writes an island as JSON (its calls of ATen ops) and safetensors (its weights): data, no code."""

from __future__ import annotations

import json

import numpy
import safetensors.torch
import torch
from torch import fx

from torchport.errors import TargetError
from torchport.targets.host.load import FORMAT
from torchport.targets.op_calls import encode, encode_call
from torchport.targets.target import Artifact, Island


def build(island: Island) -> Artifact:
    """Return the island's calls and weights as one artefact.

    Raises:
        TargetError: an argument has no JSON form.
    """
    calls: list[dict[str, object]] = []
    weights: dict[str, torch.Tensor] = {}
    complexes: list[str] = []
    inputs: list[str] = []
    outputs: list[object] = []
    for node in island.graph_module.graph.nodes:
        if node.op == "placeholder":
            inputs.append(node.name)
        elif node.op == "get_attr":
            weights[node.name] = _stored(getattr(island.graph_module, node.target), node.name, complexes)
        elif node.op == "output":
            outputs = [encode(item) for item in node.args[0]]
        else:
            calls.append(encode_call(node))
    program = {"inputs": inputs, "complexes": complexes, "calls": calls, "outputs": outputs}
    text = json.dumps(program).encode()
    try:
        blob = safetensors.torch.save(weights)
    except (KeyError, ValueError, RuntimeError) as error:
        raise TargetError(f"a weight cannot be written down: {error}", where=island.name) from error
    payload = numpy.frombuffer(bytearray(text + blob), dtype=numpy.uint8)
    return Artifact(payload, {"format": FORMAT, "program_bytes": len(text)})


def _stored(tensor: torch.Tensor, name: str, complexes: list[str]) -> torch.Tensor:
    """Return a weight as safetensors can hold it: complex numbers as pairs, their names noted."""
    if tensor.layout is not torch.strided:
        raise TargetError(f"a weight of the layout {tensor.layout} cannot be written down", where=name)
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        complexes.append(name)
        tensor = torch.view_as_real(tensor)
    return tensor.clone(memory_format=torch.contiguous_format)


def refusal(node: fx.Node) -> str:
    """Return why a node cannot be written down; empty if it can."""
    try:
        encode_call(node)
    except TargetError as error:
        return str(error)
    return ""

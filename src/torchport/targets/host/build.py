"""Serializes an island as JSON (its calls of ATen ops) and safetensors (its weights): data, no code."""

from __future__ import annotations

import json

from torchport.targets.graph_json import encode_graph
from torchport.targets.host.load import FORMAT
from torchport.targets.safetensors_file import ALIGNMENT, safetensors_bytes, storable
from torchport.targets.target import Artifact, Island


def build(island: Island) -> Artifact:
    """Return the island's calls and weights as one artefact.

    Raises:
        TargetError: a call, an argument or a weight cannot be stored.
    """
    program = encode_graph(island.graph_module.graph)
    names: list[str] = program["tensors"]  # type: ignore[assignment]  # as `encode_graph` says
    weights, complexes = storable(
        {f"t{number}": getattr(island.graph_module, name) for number, name in enumerate(names)}
    )
    text = json.dumps({**program, "tensors": list(weights), "complexes": complexes}).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    payload = safetensors_bytes(weights, after=text)
    sizes = {} if island.sizes is None else island.sizes.properties()
    return Artifact(payload, {"format": FORMAT, "program_bytes": len(text), **sizes})

"""Serializes an island in the host's format, plus the device that it is for: data, no code."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import fx

from torchport.errors import TargetError
from torchport.targets.host.build import build as build_portable
from torchport.targets.inductor.format import FORMAT
from torchport.targets.target import Artifact, Island


def build(island: Island) -> Artifact:
    """Return the island's calls and weights as one artefact.

    Raises:
        TargetError: a call, an argument or a weight cannot be serialized, or tensors are on several devices.
    """
    values = [node.meta.get("val") for node in island.graph_module.graph.nodes]
    devices = {value.device.type for value in values if isinstance(value, torch.Tensor)} - {"meta"}
    if len(devices) > 1:
        raise TargetError(f"tensors are on several devices: {', '.join(sorted(devices))}", where=island.name)
    portable = build_portable(on_host(island))
    properties: dict[str, object] = {
        "format": FORMAT,
        "device": next(iter(devices), "cpu"),
        "island": portable.properties,
        "island_bytes": int(portable.payload.size),
    }
    return Artifact(portable.payload, properties)


def on_host(island: Island) -> Island:
    """Return the island with its weights copied to CPU memory, ready to be serialized."""
    weights = {
        str(node.target): getattr(island.graph_module, str(node.target)).detach().cpu()
        for node in island.graph_module.graph.nodes
        if node.op == "get_attr"
    }
    return replace(island, graph_module=fx.GraphModule(weights, island.graph_module.graph))

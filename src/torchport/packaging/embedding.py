"""Puts the devices' own compiled forms into a program, beside the portable ones."""

from __future__ import annotations

import dataclasses
import json

import torch
from torch import fx

from torchport import targets
from torchport.records import IslandMeta, digest_of
from torchport.runtime.runnable_program import RunnableProgram
from torchport.targets import Artifact


def embed_compiled(program: RunnableProgram) -> tuple[fx.GraphModule, tuple[IslandMeta, ...]]:
    """Return a program's host graph with islands that load faster on a device like this one.

    Returns:
        The graph, whose islands hold the device's own compiled form where it has one, and the islands'
        metadata in the program's order. The program itself is left as it is.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    attributes: dict[str, object] = {}
    metas: dict[str, IslandMeta] = {}
    for node in program.graph_module.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "get_attr":
            attributes.setdefault(str(node.target), getattr(program.graph_module, str(node.target)))
        elif node.name in program.islands:
            payload, meta = _embedded(program, node)
            attributes[str(node.args[0].target)] = payload
            copies[node].update_arg(1, json.dumps(meta.to_json(), sort_keys=True))
            metas[meta.name] = meta
    in_order = tuple(metas.get(meta.name, meta) for meta in program.record.islands)
    return fx.GraphModule(attributes, graph, "Program"), in_order


def _embedded(program: RunnableProgram, node: fx.Node) -> tuple[torch.Tensor, IslandMeta]:
    island = program.islands[node.name]
    source = node.args[0]
    assert isinstance(source, fx.Node)
    payload = getattr(program.graph_module, str(source.target))
    assert isinstance(payload, torch.Tensor)
    target = targets.find(island.meta.target)
    artifact = Artifact(payload.numpy(), island.meta.properties)
    made = target.embed(artifact, island.runner, target.make_options(island.meta.options))
    if made is artifact:
        return payload, island.meta
    meta = dataclasses.replace(island.meta, digest=digest_of(made.payload.data), properties=made.properties)
    return torch.from_numpy(made.payload), meta

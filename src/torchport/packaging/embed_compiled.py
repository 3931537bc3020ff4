"""Embeds the devices' own compiled forms in a program, beside the portable ones."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence

import torch
from torch import fx

from torchport import targets
from torchport.records import IslandMeta, digest_of
from torchport.runtime.runnable_program import RunnableProgram
from torchport.targets import Artifact

Islands = tuple[IslandMeta, ...]
Change = Callable[[str, torch.Tensor, IslandMeta], tuple[torch.Tensor, IslandMeta]]


def change_islands(
    graph_module: fx.GraphModule, islands: Sequence[IslandMeta], change: Change
) -> tuple[fx.GraphModule, Islands]:
    """Return a copy of a host graph with changed island payloads, and metadata in the order of `islands`.

    Args:
        graph_module: the host graph, which is not modified.
        islands: its islands' metadata.
        change: takes an attribute's name, its payload and the island's metadata; returns the new payload and
            metadata.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    attributes: dict[str, object] = {}
    metas = {meta.name: meta for meta in islands}
    for node in graph_module.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "get_attr":
            attributes.setdefault(node.target, getattr(graph_module, node.target))
        elif node.target is torch.ops.torchport.island.default:
            name = node.args[0].target
            before = IslandMeta.from_json(json.loads(node.args[1]))
            attributes[name], meta = change(name, getattr(graph_module, name), before)
            copies[node].update_arg(1, meta.to_text())
            metas[meta.name] = meta
    return fx.GraphModule(attributes, graph, "Program"), tuple(metas[meta.name] for meta in islands)


def embed_compiled(program: RunnableProgram) -> tuple[fx.GraphModule, Islands]:
    """Return a program's host graph with islands that load faster on a device like this one.

    Returns:
        The graph, whose islands hold the device's own compiled form where it has one, and the islands'
        metadata in the program's order. The program itself is not modified.
    """
    loaded = {island.meta.name: island for island in program.islands.values()}

    def embedded(_: str, payload: torch.Tensor, meta: IslandMeta) -> tuple[torch.Tensor, IslandMeta]:
        target = targets.find(meta.target)
        artifact = Artifact(payload.numpy(), meta.properties)
        made = target.embed(artifact, loaded[meta.name].runner, target.make_options(meta.options))
        if made is artifact:
            return payload, meta
        digest = digest_of(made.payload.data)
        return torch.from_numpy(made.payload), dataclasses.replace(
            meta, digest=digest, properties=made.properties
        )

    return change_islands(program.graph_module, program.record.islands, embedded)

"""Tracks which nodes of a graph share memory, and whether an op's in-place write is visible to other nodes.

An op that writes to memory that no other node reads is equivalent to one that returns a new tensor. Others
are left to torch.
"""

from __future__ import annotations

import torch
from torch import fx

from torchport.torch_private import tree_leaves
from torchport.torch_private.attributes import storage_key


class NotInPieces(Exception):  # not an error: the whole program is traced instead
    """The graph cannot be decomposed in pieces, and is left to torch."""


class Aliases:
    """Tracks which nodes share memory."""

    def __init__(self, graph: fx.Graph) -> None:
        self._places = {node: place for place, node in enumerate(graph.nodes)}
        self._sharing: dict[int, list[fx.Node]] = {}
        self._same: dict[fx.Node, fx.Node] = {}
        for node in graph.nodes:
            if node.op != "output":
                for value in tree_leaves(node.meta.get("val")):
                    if isinstance(value, torch.Tensor):
                        self._sharing.setdefault(_memory(value), []).append(node)

    def original(self, node: fx.Node) -> fx.Node:
        """Return the node that holds the same tensor: in-place ops return the tensor that they wrote to."""
        return self._same.get(node, node)

    def note_write(self, node: fx.Node, written: fx.Node) -> None:
        """Record that a node writes to another one's memory; raise `NotInPieces` if a third would see it."""
        written = self.original(written)
        place = self._places[node]
        for other in self._sharing[_memory(written.meta["val"])]:
            if self._places[other] >= place:
                continue  # a later view, which is to see the new values
            if other.op == "placeholder":
                raise NotInPieces(f"{node.name} writes to an input")
            if self.original(other) is written:
                continue
            if any(self._places[user] > place for user in other.users):
                raise NotInPieces(f"{node.name} writes to memory that {other.name} shares")
        self._same[node] = written


def writes_in_place(node: fx.Node, aliases: Aliases) -> bool:
    """Whether an op writes in place to its first argument and returns it; raise if it writes elsewhere."""
    schema = node.target._schema  # type: ignore[union-attr]  # an op
    if not schema.is_mutable:
        return False
    written = [place for place, argument in enumerate(schema.arguments) if argument.is_write]
    if written != [0] or len(schema.returns) != 1 or schema.returns[0].alias_info is None:
        raise NotInPieces(f"{node.target} writes to several tensors")
    first = node.args[0] if node.args else None
    if not isinstance(first, fx.Node) or first.op == "placeholder":
        raise NotInPieces(f"{node.target} writes to an input")
    if _memory(first.meta["val"]) != _memory(node.meta["val"]):
        raise NotInPieces(f"{node.target} returns other memory than it wrote to")
    old, new = first.meta["val"], node.meta["val"]
    if old.shape != new.shape or old.stride() != new.stride() or old.dtype is not new.dtype:
        raise NotInPieces(f"{node.target} changes more than values")
    aliases.note_write(node, first)
    return True


def _memory(tensor: torch.Tensor) -> int:
    return storage_key(tensor.untyped_storage())

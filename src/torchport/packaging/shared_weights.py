"""Weights that several payloads hold are written once: a later payload refers to an earlier one."""

from __future__ import annotations

import itertools

import numpy
import torch
from torch import fx

from torchport import targets
from torchport.records import IslandMeta, digest_of
from torchport.runtime.island import parse_meta
from torchport.runtime.payload_file import MOST_REPEATED
from torchport.targets import Artifact

Part = tuple[str, int, int]

_SMALL = 1 << 12  # bytes; to refer to fewer takes about as many


class SharedWeights:
    """Knows the weights in the payloads that a package holds so far."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Part] = {}
        self._written = 0
        self._shared = 0

    def add(
        self, key: str, payload: torch.Tensor, meta: IslandMeta, *, whole: bool
    ) -> tuple[torch.Tensor, tuple[Part, ...]]:
        """Take a payload in; return what is to be written for it, and what it is put together from.

        Args:
            key: the payload's name in the package.
            payload: the payload.
            meta: its island's metadata.
            whole: whether it is written as it is, for a reader that puts nothing together.

        Returns:
            The payload and nothing, if it shares no weight with those before; else its rest, and its parts.
        """
        target = targets.find(meta.target)
        places = sorted(target.weight_places(Artifact(payload.numpy(), meta.properties)))
        large = [(start, size) for start, size in places if size >= _SMALL]
        large = [place for place, following in itertools.pairwise([*large, (payload.numel(), 0)])
                 if sum(place) <= following[0]]  # one within another is not shared  # fmt: skip
        weights = {
            (start, size): (digest_of(payload[start : start + size].numpy().data), size)
            for start, size in large
        }
        known = {place: self._known[weight] for place, weight in weights.items() if weight in self._known}
        # What a reader would take for a small file that stands for a large one is written as it is.
        if whole or not known or self._shared + payload.numel() > (MOST_REPEATED - 1) * self._written:
            self._written += payload.numel()
            self._note(key, weights)
            return payload, ()
        self._shared += payload.numel()
        return _cut(payload, known)

    def _note(self, key: str, weights: dict[tuple[int, int], tuple[str, int]]) -> None:
        for (start, size), weight in weights.items():
            self._known.setdefault(weight, (key, start, size))


def _cut(payload: torch.Tensor, known: dict[tuple[int, int], Part]) -> tuple[torch.Tensor, tuple[Part, ...]]:
    parts: list[Part] = []
    own: list[numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]] = []
    at = written = 0
    for (start, size), part in [*sorted(known.items()), ((payload.numel(), 0), ("", 0, 0))]:
        if start > at:
            own.append(payload[at:start].numpy())
            parts.append(("", written, start - at))
            written += start - at
        if size:
            parts.append(part)
        at = start + size
    return torch.from_numpy(numpy.concatenate(own) if own else numpy.empty(0, dtype=numpy.uint8)), tuple(
        parts
    )


def payload_metas(graph_module: fx.GraphModule) -> dict[str, IslandMeta]:
    """Return the metadata of a host graph's islands, by the attributes that are their payloads."""
    return {
        str(node.args[0].target): parse_meta(node.args[1])
        for node in graph_module.graph.nodes
        if node.target is torch.ops.torchport.island.default
    }

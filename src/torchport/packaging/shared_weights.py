"""Deduplicates weights across payloads: a later payload refers to weights in an earlier one."""

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

_SMALL = 1 << 12  # bytes; below this, a reference takes about as much space as the weight


class SharedWeights:
    """Tracks the weights in the payloads that a package contains so far."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Part] = {}
        self._written = 0
        self._shared = 0

    def add(
        self, key: str, payload: torch.Tensor, meta: IslandMeta, *, whole: bool
    ) -> tuple[torch.Tensor, tuple[Part, ...]]:
        """Add a payload; return the bytes to write for it, and the parts to reassemble it from.

        Args:
            key: the payload's name in the package.
            payload: the payload.
            meta: its island's metadata.
            whole: whether to write it in full, for a reader that does not reassemble payloads.

        Returns:
            The payload and no parts, if it shares no weight with earlier payloads; else its remaining bytes,
            and its parts.
        """
        target = targets.find(meta.target)
        places = sorted(target.weight_places(Artifact(payload.numpy(), meta.properties)))
        large = [(start, size) for start, size in places if size >= _SMALL]
        large = [place for place, following in itertools.pairwise([*large, (payload.numel(), 0)])
                 if sum(place) <= following[0]]  # overlapping weights are not shared  # fmt: skip
        weights = {
            (start, size): (digest_of(payload[start : start + size].numpy().data), size)
            for start, size in large
        }
        known = {place: self._known[weight] for place, weight in weights.items() if weight in self._known}
        # Written in full if the reader would otherwise refuse the file as expanding too much.
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
    """Return the metadata of a host graph's islands, keyed by the attributes that hold their payloads."""
    return {
        str(node.args[0].target): parse_meta(node.args[1])
        for node in graph_module.graph.nodes
        if node.target is torch.ops.torchport.island.default
    }

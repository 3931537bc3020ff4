"""The record of a compiled program: its islands, their inputs and outputs, and its coverage.

See docs/decisions/0001-compiled-program.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from torchport.records.coverage import Coverage
from torchport.records.record import JSON, Record
from torchport.records.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class IslandMeta(Record):
    """All that a target's loader must know about an island besides its payload.

    Its JSON is the `meta` argument of `torchport::island`, so it must stay small.

    Args:
        name: the island's name in the program.
        target: the target that built it and can load it.
        digest: the payload's digest by `digest_of`: it identifies the loaded island and reveals corruption.
        inputs, outputs: the tensors that enter and leave the island.
        options: the target's options, as JSON.
        properties: what the target's build step passes to its loader.
        versions: the versions of torchport, torch and the target's library at build time.
    """

    schema: ClassVar[str] = "torchport.island/1"

    name: str
    target: str
    digest: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    options: dict[str, object]
    properties: dict[str, object]
    versions: dict[str, str]

    def to_text(self) -> str:
        """Return the JSON text that `torchport::island` takes as its `meta` argument."""
        return json.dumps(self.to_json(), sort_keys=True)


@dataclass(frozen=True, slots=True)
class ProgramRecord(Record):
    """All that describes a compiled program besides payloads and weights.

    Args:
        model: the model's name.
        target: the target that it was built for.
        options: the target's options, as JSON.
        inputs: its input tensors, by their path in the call.
        outputs: its output tensors, by their path in the result.
        islands: the subgraphs that run on the target.
        frozen: the names of the weights whose values are baked into an island.
        mutated: the names of the buffers and inputs that a call writes in place.
        coverage: what stays on the host, and why.
        versions: the versions of torchport, torch and the target's library at build time.
    """

    schema: ClassVar[str] = "torchport.program/1"

    model: str
    target: str
    options: dict[str, object]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    islands: tuple[IslandMeta, ...]
    frozen: tuple[str, ...]
    mutated: tuple[str, ...]
    coverage: Coverage
    versions: dict[str, str]


__all__ = ["IslandMeta", "ProgramRecord", "JSON"]

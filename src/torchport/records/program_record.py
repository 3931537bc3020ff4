"""The compiled program as data: what each island is, and what must hold for it to be used.

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
    """All that a target's loader must know of an island besides its payload.

    Its JSON is the `meta` argument of `torchport::island`, so it must stay small.

    Args:
        name: the island's name in the program.
        target: the target that built it and can load it.
        digest: of the payload, by `digest_of`: names the loaded island, and shows a damaged one.
        inputs, outputs: the tensors that cross.
        options: the target's options, as JSON.
        properties: what the target's build tells its load.
        versions: of torchport, torch and the target's library at build time.
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
        """Return it as `torchport::island` takes it."""
        return json.dumps(self.to_json(), sort_keys=True)


@dataclass(frozen=True, slots=True)
class ProgramRecord(Record):
    """All that there is to know of a compiled program besides payloads and weights.

    Args:
        model, target: what was built for what.
        options: the target's options, as JSON.
        inputs: the tensors that it takes, by their path in the call.
        outputs: the tensors that it gives, by their path in the result.
        islands: what the target runs.
        frozen: the weights whose values are part of an island, by name.
        mutated: the buffers and inputs that a call writes, by name.
        coverage: what stays on the host, and why.
        versions: of torchport, torch and the target's library at build time.
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

"""Which ops a target takes of a generating model's calls: a chunk of a prompt, and a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.coverage import Coverage
from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class GenerationCoverage(Record):
    """Which ops a target takes of the calls that a model makes to generate.

    Args:
        model: the model's name.
        target: the target's name.
        max_length: the most tokens that a sequence may have: the slots of the KV cache.
        calls: the coverage of each call: `prompt` and `step`, or `encoder` and `step`.
    """

    schema: ClassVar[str] = "torchport.generation_coverage/1"

    model: str
    target: str
    max_length: int
    calls: dict[str, Coverage]

    @property
    def complete(self) -> bool:
        """Whether the target takes every op of every call."""
        return all(coverage.complete for coverage in self.calls.values())

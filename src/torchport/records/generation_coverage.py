"""What a target takes of a model that generates: of a piece of a prompt, and of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.coverage import Coverage
from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class GenerationCoverage(Record):
    """What a target takes of the calls that a model generates with.

    Args:
        model: the model's name.
        target: the target's name.
        max_length: how many tokens a sequence may have: the slots of the cache.
        calls: the coverage of each call: `prompt` and `step`, or `encoder` and `step`.
    """

    schema: ClassVar[str] = "torchport.generation_coverage/1"

    model: str
    target: str
    max_length: int
    calls: dict[str, Coverage]

    @property
    def complete(self) -> bool:
        """Whether the target takes all of every call."""
        return all(coverage.complete for coverage in self.calls.values())

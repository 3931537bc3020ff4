"""How often calls of a compiled model fell back to eager torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class Fallbacks(Record):
    """The number of calls of a compiled model, and how many of them fell back to eager torch.

    Args:
        calls: how many calls were made.
        fallbacks: how many of them eager torch ran.
        last_reason: why the last fallback happened; empty if there was none.
    """

    schema: ClassVar[str] = "torchport.fallbacks/1"

    calls: int = 0
    fallbacks: int = 0
    last_reason: str = ""

    def __str__(self) -> str:
        text = f"{self.fallbacks} of {self.calls} calls ran with eager torch"
        return f"{text}: {self.last_reason}" if self.last_reason else text

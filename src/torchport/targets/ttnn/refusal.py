"""What the library, or a lowering to it, refuses."""

from __future__ import annotations

from typing import NoReturn

from torchport.records import Verdict
from torchport.records.verdict import Reason


class Refused(Exception):
    """A call, or an op, that cannot be; its verdict says why."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.detail)
        self.verdict = verdict


def refuse(reason: Reason, detail: str, remedy: str = "") -> NoReturn:
    """Refuse, with a reason."""
    raise Refused(Verdict(False, reason, detail, remedy))

"""How the library's kernels, and lowerings to them, refuse a call."""

from __future__ import annotations

from typing import NoReturn

from torchport.records import Verdict
from torchport.records.verdict import Reason


class Refused(Exception):
    """A call or op that ttnn cannot run; its verdict says why."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.detail)
        self.verdict = verdict


def refuse(reason: Reason, detail: str, remedy: str = "") -> NoReturn:
    """Raise `Refused` with a verdict of this reason."""
    raise Refused(Verdict(False, reason, detail, remedy))

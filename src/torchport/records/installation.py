"""What is installed, and which targets work on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class TargetStatus(Record):
    """Whether a target works here.

    Args:
        name: the target's name.
        description: what it is, in a sentence.
        ok: whether it works here.
        detail: what is installed or missing.
        remedy: what to do if something is missing.
        version: the version of the target's library; empty if it is missing.
        devices: the devices that it sees.
        options: its options, each with its default as text.
    """

    name: str
    description: str
    ok: bool
    detail: str
    remedy: str
    version: str
    devices: tuple[str, ...]
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class Check(Record):
    """One condition that must hold for torchport to be fully functional.

    Args:
        name: what was checked.
        ok: whether it holds.
        detail: what was found.
        remedy: what to do if it does not.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Installation(Record):
    """What is installed, and which targets work here.

    Args:
        versions: the versions of Python and each package; empty for a package that is not installed.
        machine: the processor, its number of cores and torch's number of threads.
        checks: the conditions that must hold for torchport to be fully functional.
        targets: whether each target works here, and if not, why.
        cache_path: the folder where built islands are cached.
        cache_bytes: the cache's size.
    """

    schema: ClassVar[str] = "torchport.installation/1"

    versions: dict[str, str]
    machine: dict[str, str]
    checks: tuple[Check, ...]
    targets: tuple[TargetStatus, ...]
    cache_path: str
    cache_bytes: int

    @property
    def ok(self) -> bool:
        """Whether every check passes and at least one target works."""
        return all(check.ok for check in self.checks) and any(target.ok for target in self.targets)

"""A file that a report cannot show."""

from __future__ import annotations

from dataclasses import dataclass

from torchport.errors import TorchportError
from torchport.records import Record


@dataclass(frozen=True, slots=True)
class Problem(Record):
    """A file that cannot be shown.

    Args:
        path: the file.
        detail: what is wrong with it, and what to do, in a sentence.
    """

    path: str
    detail: str

    @classmethod
    def of(cls, error: TorchportError) -> Problem:
        """Return the problem that an error describes; its `where` is the file."""
        return cls(error.where, f"{error.what}: {error.remedy}" if error.remedy else error.what)

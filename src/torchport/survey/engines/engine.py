"""The interface of an engine that runs a survey's items."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from torchport.survey.work_item import ItemOutcome, Limits, WorkItem

Started = Callable[[WorkItem], None]


class Engine(Protocol):
    """Runs items, each in a process of its own, several at a time."""

    @property
    def workers(self) -> int:
        """How many items run at a time."""

    def run(
        self, items: Sequence[WorkItem], limits: Limits, started: Started
    ) -> Generator[ItemOutcome, None, None]:
        """Yield the outcome of each item as it completes, in any order.

        Closing the iterator ends the items that are still running.

        Args:
            items: the items to run.
            limits: the limits of each item.
            started: called with each item when it starts.

        Raises:
            SurveyError: the engine cannot run, or its disk is full.
        """
        ...

"""What a survey asks of an engine."""

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
        """Yield what came of each item as it is done, in whatever order.

        When the iterator is closed, whatever still runs is ended.

        Args:
            items: what to run.
            limits: what each may take.
            started: is told of an item as it begins.

        Raises:
            SurveyError: the engine cannot run, or its disk is full.
        """
        ...

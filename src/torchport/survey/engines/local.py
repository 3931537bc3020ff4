"""Runs a survey's items on this machine: several worker processes, each with a thread that waits for it."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Generator, Sequence

from torchport.survey.engines.engine import Started
from torchport.survey.work_item import ItemOutcome, Limits, WorkItem
from torchport.survey.worker import Worker


class LocalEngine:
    """A pool of worker processes.

    Args:
        workers: how many items run at a time.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    @property
    def workers(self) -> int:
        """How many items run at a time."""
        return self._workers

    def run(
        self, items: Sequence[WorkItem], limits: Limits, started: Started
    ) -> Generator[ItemOutcome, None, None]:
        """Yield the outcome of each item as it completes; see `Engine.run`."""
        waiting: queue.SimpleQueue[WorkItem] = queue.SimpleQueue()
        for item in items:
            waiting.put(item)
        done: queue.SimpleQueue[WorkItem | ItemOutcome | BaseException] = queue.SimpleQueue()
        count = min(self._workers, len(items))
        share = (os.cpu_count() or 1) // count
        workers = [Worker(share, os.getcwd()) for _ in range(count)]
        threads = [
            threading.Thread(target=_serve, args=(worker, waiting, done, limits), daemon=True)
            for worker in workers
        ]
        for thread in threads:
            thread.start()
        left = len(items)
        try:
            while left:
                event = done.get()
                if isinstance(event, BaseException):
                    raise event
                if isinstance(event, WorkItem):
                    started(event)
                    continue
                left -= 1
                yield event
        finally:
            for worker in workers:
                worker.close()
            for thread in threads:
                thread.join()


def _serve(
    worker: Worker,
    waiting: queue.SimpleQueue[WorkItem],
    done: queue.SimpleQueue[WorkItem | ItemOutcome | BaseException],
    limits: Limits,
) -> None:
    """Run items on a worker until none are left, or the worker is closed."""
    try:
        while not worker.closed:
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            done.put(item)
            done.put(worker.run(item, limits))
    except BaseException as error:  # noqa: BLE001  # re-raised by the consumer of the outcomes
        done.put(error)

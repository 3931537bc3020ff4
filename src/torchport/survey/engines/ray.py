"""Runs a survey's items on a Ray cluster, in actors that each have a worker process."""

from __future__ import annotations

import collections
import importlib
import logging
import os
import socket
from collections.abc import Generator, Iterator, Sequence
from types import ModuleType
from typing import Any

from torchport.errors import SurveyError, one_line
from torchport.records import SurveyRow
from torchport.survey.engines.engine import Started
from torchport.survey.work_item import ItemOutcome, Limits, WorkItem
from torchport.survey.worker import Worker

_REACH_SECONDS = 5.0


class RayEngine:
    """A Ray cluster.

    Args:
        workers: how many items run at a time; by default one for each processor of the cluster.
        address: the cluster's address; without it, one is started on this machine and stopped afterwards.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self._wanted = workers
        self._address = address

    @property
    def workers(self) -> int:
        """How many items run at a time, at most, on each machine."""
        return self._wanted or os.cpu_count() or 1

    def run(
        self, items: Sequence[WorkItem], limits: Limits, started: Started
    ) -> Generator[ItemOutcome, None, None]:
        """Yield the outcome of each item as it completes; see `Engine.run`."""
        ray = _import_ray()
        mine = not ray.is_initialized()
        if mine:
            self._connect(ray)
        actors: list[Any] = []
        try:
            count = self._wanted or int(ray.cluster_resources().get("CPU", 1))
            # One processor each, so that Ray distributes them over its machines.
            kind = ray.remote(num_cpus=1, max_restarts=-1)(Worker)
            actors = [kind.remote(1, os.getcwd()) for _ in range(min(count, len(items)))]
            yield from _dispatch(ray, actors, items, limits, started)
        finally:
            for actor in actors:
                ray.kill(actor)
            if mine:
                ray.shutdown()

    def _connect(self, ray: ModuleType) -> None:
        try:
            _check_reachable(self._address)
            ray.init(
                address=self._address,
                num_cpus=None if self._address else self._wanted,
                include_dashboard=False if self._address is None else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise SurveyError(
                f"the Ray cluster cannot be reached ({one_line(error)})",
                where=self._address or "",
                remedy="give the address of a running cluster: --address HOST:PORT",
            ) from error


def _dispatch(
    ray: ModuleType, actors: list[Any], items: Sequence[WorkItem], limits: Limits, started: Started
) -> Iterator[ItemOutcome]:
    """Give each actor its next item as soon as it completes one."""
    waiting = collections.deque(items)
    running: dict[Any, tuple[Any, WorkItem]] = {}

    def give(actor: Any) -> None:
        if waiting:
            item = waiting.popleft()
            started(item)
            running[actor.run.remote(item, limits)] = (actor, item)

    for actor in actors:
        give(actor)
    while running:
        [ready], _ = ray.wait(list(running), num_returns=1)
        actor, item = running.pop(ready)
        outcome = _outcome(ray, ready, item)
        give(actor)
        yield outcome


def _outcome(ray: ModuleType, ready: Any, item: WorkItem) -> ItemOutcome:
    try:
        outcome: ItemOutcome = ray.get(ready)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, SurveyError) else error from None
    except ray.exceptions.RayError as error:  # its machine or its process is gone
        row = SurveyRow(item.model, "crashed", error=f"its Ray worker died: {one_line(error)}")
        return ItemOutcome(item, row.to_json(), {})
    return outcome


def _check_reachable(address: str | None) -> None:
    """Check that an address accepts connections, since Ray itself would retry for minutes.

    Raises:
        OSError: the connection failed.
    """
    host, separator, port = (address or "").removeprefix("ray://").rpartition(":")
    if separator and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()


def _import_ray() -> ModuleType:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise SurveyError("Ray is not installed", remedy='pip install "torchport[ray]"') from error

"""Interrupts DuckDB when its statements take too long."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from torchport.errors import ReportError

if TYPE_CHECKING:
    import duckdb

_INTERVAL = 0.1  # seconds between interrupts, which are repeated since one between two statements is lost
_LONGEST = 365 * 86400.0  # seconds; a longer wait would overflow the system's timer


class TimeLimit:
    """A context manager that interrupts a connection's statements once their time is up.

    Args:
        connection: the connection to DuckDB.
        seconds: how long its statements may take in total.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._deadline = time.monotonic() + min(seconds, _LONGEST)
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._interrupt, name="torchport-time-limit", daemon=True)

    def __enter__(self) -> TimeLimit:
        self._watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        self._watch.join()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Run a statement within the limit.

        Raises:
            ReportError: the time is up.
        """
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            if self._expired:
                raise self._refusal() from error
            raise
        if self._expired:
            raise self._refusal()

    @property
    def _expired(self) -> bool:
        return time.monotonic() >= self._deadline

    def _refusal(self) -> ReportError:
        return ReportError(
            f"takes more than {self._seconds:g} seconds",
            where="reading the survey",
            remedy="simplify the query, or raise the limit with --timeout SECONDS",
        )

    def _interrupt(self) -> None:
        self._done.wait(max(0.0, self._deadline - time.monotonic()))
        while not self._done.wait(_INTERVAL):
            self._connection.interrupt()

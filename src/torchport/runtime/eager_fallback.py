"""Falls back to eager torch when the compiled program fails; counts fallbacks and logs each reason once.

A program that raises has mutated nothing and drawn no random numbers: it writes buffers and inputs last.
So eager torch gives the right result, or the right error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from torchport.errors import one_line
from torchport.records import Fallbacks
from torchport.targets.target import OutOfRange

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

# A reason may contain a value and so differ on every call: after this many, no more warnings are logged.
_MOST_REASONS = 16


class NotCompiled(Exception):
    """Raised when there is no program for this call; the message says why."""


class EagerFallback:
    """Runs the calls of one compiled model or graph, and counts how many fall back to eager torch.

    Args:
        what: the name of the model, for messages.
    """

    __slots__ = (
        "__weakref__",
        "_calls",
        "_fallbacks",
        "_last_reason",
        "_lock",
        "_said",
        "_what",
        "last_time",
    )

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._calls = 0
        self._fallbacks = 0
        self._last_reason = ""
        self.last_time = 0.0  # when eager torch last ran a call
        self._said: set[str] = set()

    @property
    def record(self) -> Fallbacks:
        """The current counts."""
        with self._lock:
            return Fallbacks(self._calls, self._fallbacks, self._last_reason)

    def run(
        self,
        compiled: Callable[[], _Result],
        eager: Callable[[], _Result] | None,
        *,
        passing: tuple[type[Exception], ...] = (),
    ) -> _Result:
        """Return the result of `compiled`, or of `eager` if that raises.

        Args:
            compiled: runs the compiled call.
            eager: runs the call with eager torch; if None, exceptions from `compiled` propagate.
            passing: exceptions that the caller handles itself; they propagate, and the call is not counted.
        """
        try:
            result = compiled()
        except passing:
            raise
        except Exception as error:  # a device may raise anything
            if eager is None:
                raise
            self._note(error)
        else:
            with self._lock:
                self._calls += 1
            return result
        return eager()

    def run_eagerly(self, reason: str, eager: Callable[[], _Result]) -> _Result:
        """Return the result of `eager`, and count a fallback: nothing is compiled for this call."""
        self._note(NotCompiled(reason))
        return eager()

    def _note(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, (OutOfRange, NotCompiled)) else one_line(error)
        with self._lock:
            self._calls += 1
            self._fallbacks += 1
            self._last_reason = reason
            self.last_time = time.monotonic()
            said = reason in self._said or len(self._said) >= _MOST_REASONS
            if not said:
                self._said.add(reason)
        level = logging.DEBUG if said else logging.WARNING
        _log.log(level, "%s: this call runs with eager torch: %s", self._what, reason)
        _log.debug("%s", self._what, exc_info=error)

"""Suppresses the output and warnings of individual threads; those of other threads are still shown."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class HeldStream:
    """A standard stream of the process, replaced by a filter while any thread suppresses its output.

    Args:
        name: `stdout` or `stderr`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._threads: Counter[int] = Counter()

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Drop everything that this thread writes to the stream."""
        thread = threading.get_ident()
        with self._lock:
            here = getattr(sys, self._name)
            if here is not None and not self._is_ours(here):
                setattr(sys, self._name, _FilteredStream(here, self._threads))
            self._threads[thread] += 1
        try:
            yield
        finally:
            with self._lock:
                self._threads -= Counter([thread])
                here = getattr(sys, self._name)
                # Other code may have replaced the stream, and may restore ours later: it drops nothing then.
                if not self._threads and self._is_ours(here):
                    setattr(sys, self._name, here.stream)

    def _is_ours(self, stream: object) -> bool:
        return isinstance(stream, _FilteredStream) and stream.silent is self._threads


class _FilteredStream:
    """A stream that drops the output of some threads."""

    def __init__(self, stream: TextIO, silent: Counter[int]) -> None:
        self.stream = stream
        self.silent = silent

    def write(self, text: str) -> int:
        """Write text, or drop it if this thread is silenced."""
        return len(text) if threading.get_ident() in self.silent else self.stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, or drop them if this thread is silenced."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


class HeldWarnings:
    """Python's warnings, suppressed per thread.

    `warnings.catch_warnings` is not thread-safe: two threads that overlap may leave filters behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: Counter[int] = Counter()
        self._filter: Any = ("ignore", self, Warning, None, 0)
        self._lists: list[list[Any]] = []

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Drop the warnings that this thread issues."""
        thread = threading.get_ident()
        with self._lock:
            self._threads[thread] += 1
            filters: list[Any] = warnings.filters  # type: ignore[assignment]  # a list, typed as a sequence
            if not any(item is self._filter for item in filters[:1]):
                filters.insert(0, self._filter)
                self._lists.append(filters)
        try:
            yield
        finally:
            with self._lock:
                self._threads -= Counter([thread])
                if not self._threads:
                    # Other code may have replaced the list by a copy, and may restore the original later.
                    for filters in (*self._lists, warnings.filters):  # type: ignore[assignment]  # as above
                        filters[:] = [item for item in filters if item is not self._filter]
                    self._lists.clear()

    def match(self, text: str) -> bool:
        """Return whether to drop a warning; `warnings` calls this as the `match` of a message pattern."""
        return threading.get_ident() in self._threads


STDOUT, STDERR, WARNINGS = HeldStream("stdout"), HeldStream("stderr"), HeldWarnings()

"""Holds back what one thread prints and warns of; what others do meanwhile is theirs, and is shown."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class HeldStream:
    """One of the process's streams, in whose place another stands while any thread holds it back.

    Args:
        name: `stdout` or `stderr`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._threads: Counter[int] = Counter()

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Drop what this thread prints."""
        thread = threading.get_ident()
        with self._lock:
            here = getattr(sys, self._name)
            if here is not None and not self._is_ours(here):
                setattr(sys, self._name, _OfOthers(here, self._threads))
            self._threads[thread] += 1
        try:
            yield
        finally:
            with self._lock:
                self._threads -= Counter([thread])
                here = getattr(sys, self._name)
                # Somebody else may have put a stream there, and may put ours back: it drops nothing then.
                if not self._threads and self._is_ours(here):
                    setattr(sys, self._name, here.stream)

    def _is_ours(self, stream: object) -> bool:
        return isinstance(stream, _OfOthers) and stream.silent is self._threads


class _OfOthers:
    """A stream, for all but some threads."""

    def __init__(self, stream: TextIO, silent: Counter[int]) -> None:
        self.stream = stream
        self.silent = silent

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        return len(text) if threading.get_ident() in self.silent else self.stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, or drop them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


class HeldWarnings:
    """Python's warnings. `warnings.catch_warnings` is for one thread: two may leave its filters behind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: Counter[int] = Counter()
        self._filter: Any = ("ignore", self, Warning, None, 0)
        self._lists: list[list[Any]] = []

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Drop what is warned of in this thread."""
        thread = threading.get_ident()
        with self._lock:
            self._threads[thread] += 1
            filters: list[Any] = warnings.filters  # type: ignore[assignment]  # a list, which is said to be a sequence
            if not any(item is self._filter for item in filters[:1]):
                filters.insert(0, self._filter)
                self._lists.append(filters)
        try:
            yield
        finally:
            with self._lock:
                self._threads -= Counter([thread])
                if not self._threads:
                    # Somebody else may have copied them meanwhile, and may put the others back.
                    for filters in (*self._lists, warnings.filters):  # type: ignore[assignment]  # as above
                        filters[:] = [item for item in filters if item is not self._filter]
                    self._lists.clear()

    def match(self, text: str) -> bool:
        """Say whether a warning is dropped; the filter asks as it would ask a pattern."""
        return threading.get_ident() in self._threads


STDOUT, STDERR, WARNINGS = HeldStream("stdout"), HeldStream("stderr"), HeldWarnings()

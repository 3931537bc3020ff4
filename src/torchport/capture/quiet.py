"""Contexts for captures: torch kept quiet, one thread at a time, eager mode, no garbage collection."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
from collections.abc import Iterator

import torch

from torchport.capture.suppressed_output import STDERR, WARNINGS
from torchport.capture.untouched.torch_state import torch_as_it_was
from torchport.torch_private import DYNAMO, EXPORT_LOGGER, FAKE_TENSOR_LOGGER

# These log full tracebacks for errors that are also raised.
_LOUD = (
    FAKE_TENSOR_LOGGER,
    "torch.fx.experimental.symbolic_shapes",
    "torch.export",
    EXPORT_LOGGER,
)


@contextlib.contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppress torch's warnings, logs and stderr output, and restore torch's state on exit.

    Only one thread can be inside at a time: torch's tracing is not thread-safe.
    """
    # Imported here, since the import takes seconds; Dynamo traces under the same lock.
    from torchport.torch_private import compile_lock

    with compile_lock, quiet_streams(), torch_as_it_was():
        yield


class _Held:
    """The process's logs, suppressed while anyone is inside `quiet_streams`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.rest = contextlib.ExitStack()


_held = _Held()


@contextlib.contextmanager
def quiet_streams() -> Iterator[None]:
    """Suppress warnings, logs and stderr output, in any number of threads; for runs that do not trace."""
    with _held.lock:
        _held.users += 1
        if _held.users == 1:
            _held.rest.enter_context(_without_logs())
    try:
        with STDERR.held_back(), WARNINGS.held_back():
            yield
    finally:
        with _held.lock:
            _held.users -= 1
            if not _held.users:
                _held.rest.close()


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _LOUD]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Disable Python's cyclic garbage collector: with this many new objects, its passes are slow."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def as_eager() -> Iterator[None]:
    """Run every module as its Python code says: without fused fast paths or compiled code."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        if DYNAMO in sys.modules:  # otherwise nothing can have been compiled
            with torch.compiler.set_stance("force_eager"):
                yield
        else:
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)

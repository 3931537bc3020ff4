"""What a capture runs under: torch quiet, in one thread, eager, and without collections of garbage."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
from collections.abc import Iterator

import torch

from torchport.capture.held_output import STDERR, WARNINGS
from torchport.capture.untouched.torch_state import torch_as_it_was
from torchport.torch_private import DYNAMO, EXPORT_LOGGER, FAKE_TENSOR_LOGGER

# These log whole tracebacks for errors that are raised as well.
_LOUD = (
    FAKE_TENSOR_LOGGER,
    "torch.fx.experimental.symbolic_shapes",
    "torch.export",
    EXPORT_LOGGER,
)


@contextlib.contextmanager
def quiet_torch() -> Iterator[None]:
    """Hold back what torch warns of, logs and prints to the error stream, and leave torch as it was.

    Only one thread is in here at a time: torch's tracing is not made for more.
    """
    # Imported here, since it takes seconds; Dynamo traces under the same lock.
    from torchport.torch_private import compile_lock

    with compile_lock, quiet_streams(), torch_as_it_was():
        yield


class _Held:
    """The process's logs, held back for as long as anybody wants them to be."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.rest = contextlib.ExitStack()


_held = _Held()


@contextlib.contextmanager
def quiet_streams() -> Iterator[None]:
    """Hold back warnings, logs and prints, for any number of threads: for runs that trace nothing."""
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
    """Keep Python from looking for cycles meanwhile: among so many new objects that takes its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def as_eager() -> Iterator[None]:
    """Let every module run as its Python says: no fused fast path, and nothing compiled."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        if DYNAMO in sys.modules:  # else nothing can have been compiled
            with torch.compiler.set_stance("force_eager"):
                yield
        else:
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)

"""Keeps torch quiet, and to one thread, while it traces: what goes wrong is raised, and explained once."""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import warnings
from collections.abc import Iterator

from torchport.capture.untouched.torch_state import torch_as_it_was
from torchport.torch_private import EXPORT_LOGGER, FAKE_TENSOR_LOGGER

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
    """The process's streams, held back for as long as anybody wants them to be."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.streams = contextlib.ExitStack()


_held = _Held()


@contextlib.contextmanager
def quiet_streams() -> Iterator[None]:
    """Hold back warnings, logs and prints, for any number of threads: for runs that trace nothing."""
    with _held.lock:
        _held.users += 1
        if _held.users == 1:
            _held.streams.enter_context(_without_output())
    try:
        yield
    finally:
        with _held.lock:
            _held.users -= 1
            if not _held.users:
                _held.streams.close()


@contextlib.contextmanager
def _without_output() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _LOUD]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

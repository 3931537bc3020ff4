"""Keeps torch quiet, and to one thread, while it traces: what goes wrong is raised, and explained once."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

# These log whole tracebacks for errors that are raised as well.
_LOUD = (
    "torch._subclasses.fake_tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch.export",
    "torch._export",
)


@contextlib.contextmanager
def quiet_torch() -> Iterator[None]:
    """Hold back the warnings, logs and prints that torch sends to the error stream.

    Only one thread is in here at a time: neither the streams nor torch's tracing are made for more.
    """
    # Imported here, since it takes seconds; Dynamo traces under the same lock.
    from torch._dynamo.convert_frame import compile_lock

    with compile_lock, quiet_streams():
        yield


@contextlib.contextmanager
def quiet_streams() -> Iterator[None]:
    """Hold back warnings, logs and prints, without a lock: for runs that trace nothing."""
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

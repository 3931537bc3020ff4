"""Keeps torch quiet while it traces: what goes wrong there is raised, and explained once."""

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
    """Hold back the warnings, logs and prints that torch sends to the error stream."""
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

"""Imports the optional libraries that provide models, or says how to install them."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import threading
from contextlib import suppress
from types import ModuleType

from torchport.errors import ZooError
from torchport.torch_private import PYTREE_LOGGER
from torchport.zoo.torchvision_ops import ensure_torchvision_ops

# The extra of the distribution that installs each library.
EXTRAS = {"torchvision": "torchvision", "timm": "timm", "transformers": "hf"}


# Loggers that report, during the import, that parts of torchao are for other machines or out of date.
_NOISY_LOGGERS = ("torchao", PYTREE_LOGGER)
_silencing = threading.Lock()  # a level is the whole process's


def is_installed(library: str) -> bool:
    """Return whether `library` can be found, without importing it."""
    return importlib.util.find_spec(library) is not None


def import_library(library: str) -> ModuleType:
    """Import one of the optional libraries.

    Args:
        library: a key of `EXTRAS`.

    Returns:
        The imported module.

    Raises:
        ZooError: the library is not installed, or its import fails.
    """
    if not is_installed(library):
        raise ZooError(f"{library} is not installed", remedy=f'pip install "torchport[{EXTRAS[library]}]"')
    try:
        # timm and transformers import torchvision if it is installed, so it must be importable first.
        ensure_torchvision_ops()
        if library == "transformers":
            _import_torchao()
        return importlib.import_module(library)
    except Exception as error:  # a broken installation may raise anything
        raise ZooError(
            f"{library} is installed but its import fails ({type(error).__name__}: {error})",
            remedy="install compatible builds of torch and this library",
        ) from error


def _import_torchao() -> None:
    """Import torchao with its log messages silenced; transformers imports it if it is installed."""
    with _silencing:
        loggers = [logging.getLogger(name) for name in _NOISY_LOGGERS]
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            with suppress(Exception):  # transformers works without it, or reports the error itself
                importlib.import_module("torchao.prototype.safetensors.safetensors_support")
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

"""Imports the optional libraries that models come from, or says how to install them."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from contextlib import suppress
from types import ModuleType

from torchport.errors import ZooError
from torchport.torch_private import PYTREE_LOGGER
from torchport.zoo.torchvision_ops import ensure_torchvision_ops

# The distribution's extra that brings each library.
EXTRAS = {"torchvision": "torchvision", "timm": "timm", "transformers": "hf"}


# Who logs, on the way, that a part of torchao is for other machines, or out of date.
_TALKERS = ("torchao", PYTREE_LOGGER)


def is_installed(library: str) -> bool:
    """Say whether `library` can be found, without importing it."""
    return importlib.util.find_spec(library) is not None


def import_library(library: str) -> ModuleType:
    """Import one of the optional libraries.

    Args:
        library: a key of `EXTRAS`.

    Returns:
        The imported module.

    Raises:
        ZooError: it is not installed, or its import fails.
    """
    if not is_installed(library):
        raise ZooError(f"{library} is not installed", remedy=f'pip install "torchport[{EXTRAS[library]}]"')
    try:
        # timm and transformers import torchvision where they find it, so it must be importable first.
        ensure_torchvision_ops()
        if library == "transformers":
            _import_torchao()
        return importlib.import_module(library)
    except Exception as error:  # a broken installation may raise anything
        raise ZooError(
            f"{library} is installed but its import fails ({type(error).__name__}: {error})",
            remedy="install builds of torch and of this library that belong together",
        ) from error


def _import_torchao() -> None:
    """Import torchao, which transformers imports where it finds it, without what that logs."""
    loggers = [logging.getLogger(name) for name in _TALKERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with suppress(Exception):  # transformers does without it, or says what is wrong
            importlib.import_module("torchao.prototype.safetensors.safetensors_support")
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

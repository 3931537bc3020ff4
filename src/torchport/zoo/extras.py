"""Imports the optional libraries that models come from, or says how to install them."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from torchport.errors import ZooError
from torchport.zoo.torchvision_ops import ensure_torchvision_ops

# The distribution's extra that brings each library.
EXTRAS = {"torchvision": "torchvision", "timm": "timm", "transformers": "hf"}


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
        return importlib.import_module(library)
    except Exception as error:  # a broken installation may raise anything
        raise ZooError(
            f"{library} is installed but its import fails ({type(error).__name__}: {error})",
            remedy="install builds of torch and of this library that belong together",
        ) from error

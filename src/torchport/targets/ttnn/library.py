"""Finds the ttnn library, and imports it when first needed."""

from __future__ import annotations

import functools
import importlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from torchport.errors import TargetError

REMEDY = "pip install ttnn, on a machine with a Tenstorrent chip and CPython 3.10 or 3.12"


def installed_version() -> str:
    """Return ttnn's version; empty if it is not installed."""
    try:
        return version("ttnn")
    except PackageNotFoundError:
        return ""


@functools.cache
def has_device() -> bool:
    """Whether the library is installed and there is a chip; the driver exposes each chip as a device file."""
    return bool(installed_version()) and any(Path("/dev/tenstorrent").glob("*"))


@functools.cache
def ttnn() -> Any:
    """Return the module `ttnn`.

    Raises:
        TargetError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module("ttnn")
    except ImportError as error:
        raise TargetError(f"ttnn cannot be imported ({error})", where="ttnn", remedy=REMEDY) from error

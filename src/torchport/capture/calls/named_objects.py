"""Classes and functions by their names: they have no other form in a graph."""

from __future__ import annotations

import importlib


def named(module: str, name: str) -> object:
    """Return what a module calls by a name: classes and functions have no other form in a graph."""
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found

"""Determines whether a name refers to torchport's package or to the real one, which is never shadowed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from torchport.errors import TorchportError

FOLDER = Path(__file__).resolve().parent / "names"
NAMES = ("torch_ttnn", "torch_neuron", "tinynn", "model_analysis")


class NameTaken(TorchportError, ImportError):
    """Another package of this name, which is not torchport's, is installed."""


def claim(name: str) -> None:
    """Allow torchport's package of a name to be imported, if there is no other.

    Raises:
        NameTaken: there is another package of this name, which torchport's would shadow.

    Example:
        >>> claim("torch_ttnn")
    """
    other = locate(name)
    if other is not None:
        raise NameTaken(
            f"torchport's {name} is found first, and would shadow the real package",
            where=str(other),
            remedy="uninstall one of them: `pip uninstall torchport-compat` keeps the real one",
        )


def locate(name: str) -> Path | None:
    """Return the path of a package of this name that is not torchport's; None if there is none."""
    for spec in _found(name):
        place = Path(spec.origin).resolve() if spec.origin else None
        if place is not None and not place.is_relative_to(FOLDER):
            return place
    return None


def comes_first(name: str) -> bool:
    """Whether `import NAME` finds torchport's package."""
    first = next((spec for spec in _found(name) if spec.origin), None)
    return first is not None and Path(str(first.origin)).resolve().is_relative_to(FOLDER)


def _found(name: str) -> Iterator[ModuleSpec]:
    """Yield the import specs of a name, in Python's search order."""
    for finder in sys.meta_path:
        # PathFinder returns only the first match, so it is called for each path entry.
        for path in [[entry] for entry in sys.path] if finder is PathFinder else [None]:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path) if find is not None else None
            if spec is not None:
                yield spec

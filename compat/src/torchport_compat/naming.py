"""Whose package a name is: torchport's, or the real one's, which is never shadowed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from torchport.errors import TorchportError

FOLDER = Path(__file__).resolve().parent / "names"
NAMES = ("torch_ttnn", "torch_neuron", "tinynn", "model_analysis")


class NameTaken(TorchportError, ImportError):
    """A package of this name is installed that is not torchport's."""


def claim(name: str) -> None:
    """Let torchport's package of a name be imported, if there is no other.

    Raises:
        NameTaken: there is another; this one, found first, would shadow it.

    Example:
        >>> claim("torch_ttnn")
    """
    other = locate(name)
    if other is not None:
        raise NameTaken(
            f"{name} is torchport's here, and would shadow the package of that name",
            where=str(other),
            remedy="uninstall one of them: `pip uninstall torchport-compat` leaves the real one",
        )


def locate(name: str) -> Path | None:
    """Return where a package of this name is that is not torchport's; nothing if there is none."""
    for spec in _found(name):
        place = Path(spec.origin).resolve() if spec.origin else None
        if place is not None and not place.is_relative_to(FOLDER):
            return place
    return None


def comes_first(name: str) -> bool:
    """Say whether `import NAME` finds torchport's package."""
    first = next((spec for spec in _found(name) if spec.origin), None)
    return first is not None and Path(str(first.origin)).resolve().is_relative_to(FOLDER)


def _found(name: str) -> Iterator[ModuleSpec]:
    """Yield every package of a name, in the order in which Python looks; folders without code are none."""
    for finder in sys.meta_path:
        # The path's finder says only what is first: it is asked for each entry.
        for path in [[entry] for entry in sys.path] if finder is PathFinder else [None]:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path) if find is not None else None
            if spec is not None:
                yield spec

"""What graphs of calls call of ours: classes by name, objects put together, guards."""

from __future__ import annotations

import importlib
from typing import Any

from torchport.errors import RuntimeRefusal


def hold(actual: object, expected: object, line: str) -> None:
    """Raise unless a value is the one that the graph was traced with.

    Args:
        actual: the value.
        expected: the value while tracing.
        line: the user's line that asked for it.

    Raises:
        RuntimeRefusal: it is another one.
    """
    if actual != expected:
        raise RuntimeRefusal(
            f"traced with {expected!r}, but called with {actual!r}",
            where=line,
            remedy="trace the model again with these inputs",
        )


def named(module: str, name: str) -> object:
    """Return what a module calls by a name: classes and functions have no other form in a graph."""
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def apply_function(module: str, name: str, *args: object) -> object:
    """Call a custom autograd function that is known by its module and name."""
    kind: Any = named(module, name)
    return kind.apply(*args)


def assemble(kind: type, state: dict[str, object]) -> object:
    """Return an object of a class with these attributes, without calling its `__init__`."""
    made: object = object.__new__(kind)
    made.__dict__.update(state)
    return made

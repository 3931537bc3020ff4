"""torchport's own functions in call graphs: lookup of classes by name, object construction, guards."""

from __future__ import annotations

import importlib
from typing import Any

from torchport.errors import RuntimeRefusal


def hold(actual: object, expected: object, line: str) -> None:
    """Raise unless a value equals the one that the graph was traced with.

    Args:
        actual: the value.
        expected: its value during tracing.
        line: the user's source line that read it.

    Raises:
        RuntimeRefusal: the value differs.
    """
    if actual != expected:
        raise RuntimeRefusal(
            f"traced with {expected!r}, but called with {actual!r}",
            where=line,
            remedy="trace the model again with these inputs",
        )


def named(module: str, name: str) -> object:
    """Return an object of a module by its name: a graph cannot contain classes and functions otherwise."""
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def apply_function(module: str, name: str, *args: object) -> object:
    """Call a custom autograd function, given by its module and name."""
    kind: Any = named(module, name)
    return kind.apply(*args)


def assemble(kind: type, state: dict[str, object]) -> object:
    """Construct an object of a class with the given attributes, without calling its `__init__`."""
    made: object = object.__new__(kind)
    made.__dict__.update(state)
    return made

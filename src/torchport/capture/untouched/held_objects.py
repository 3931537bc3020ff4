"""Determines which of the objects that a model holds are plain holders of values, and can be copied."""

from __future__ import annotations

import copyreg
import functools
import sys
import types
from typing import Any, cast

from torch import nn

# The only classes of Python's standard library that are plain holders of values.
_HOLDERS = ("types.SimpleNamespace", "argparse.Namespace", "collections.UserDict", "collections.UserList")
_COPY_PROTOCOL = ("__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__")


def is_holder(value: object, kind: type) -> bool:
    """Whether a forward may write to an object's attributes, and a copy of the object can replace it."""
    return bool((getattr(value, "__dict__", None) or slots(kind)) and _has_holders(kind))


@functools.lru_cache(maxsize=4096)
def _has_holders(kind: Any) -> bool:
    """Whether instances of a class are fully described by their attributes.

    This excludes classes that define how to copy them, and classes of torch and of Python's standard library,
    whose instances represent more: locks, loggers, graphs.
    """
    if f"{kind.__module__}.{kind.__qualname__}" in _HOLDERS:
        return True
    library = kind.__module__.partition(".")[0]
    if library in sys.stdlib_module_names or library == "numpy" or issubclass(kind, (type, BaseException)):
        return False
    if library == "torch" and not kind.__module__.startswith("torch.distributions"):
        return False
    plain = _plain_base(kind)
    if any(getattr(kind, name, None) is not getattr(plain, name, None) for name in _COPY_PROTOCOL):
        return False
    try:
        empty_holder(kind)
    except TypeError:  # it has state beyond Python attributes
        return False
    return True


def empty_holder(kind: type) -> object:
    """Return a new instance of a class without attributes; the class's own code is not run."""
    base: Any = _plain_base(kind)
    return base.__new__(kind)


def _plain_base(kind: type) -> type:
    return types.SimpleNamespace if issubclass(kind, types.SimpleNamespace) else object


def slots(kind: type) -> list[str]:
    """Return the names of the slots of a class and its bases; Python caches them."""
    return cast("list[str]", copyreg._slotnames(kind))  # type: ignore[attr-defined]  # missing in typeshed


def named_objects(module: nn.Module) -> set[int]:
    """Return the ids of the module-level objects in the files of a model's classes: these are shared."""
    files = {kind.__module__ for part in {type(part) for part in module.modules()} for kind in part.__mro__}
    found: set[int] = set()
    for name in files:
        if name.partition(".")[0] not in ("torch", "builtins"):
            held = getattr(sys.modules.get(name), "__dict__", {})
            found.update(map(id, list(held.values())))
    return found

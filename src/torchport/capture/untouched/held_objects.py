"""Tells which of the objects that a model holds are holders of values, which a copy can stand for."""

from __future__ import annotations

import copyreg
import functools
import sys
import types
from typing import Any, cast

from torch import nn

# Of others' classes these alone are plain holders of values.
_HOLDERS = ("types.SimpleNamespace", "argparse.Namespace", "collections.UserDict", "collections.UserList")
_COPY_PROTOCOL = ("__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__")


def is_holder(value: object, kind: type) -> bool:
    """Whether an object is one whose attributes a forward may write, and whose copy would do as well."""
    return bool((getattr(value, "__dict__", None) or slots(kind)) and _has_holders(kind))


@functools.lru_cache(maxsize=4096)
def _has_holders(kind: Any) -> bool:
    """Whether a class's objects are what their attributes say.

    Not those of classes that say themselves how to copy them, nor those of torch and of Python's library,
    which stand for more: locks, loggers, graphs.
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
    except TypeError:  # there is more to it than Python's attributes
        return False
    return True


def empty_holder(kind: type) -> object:
    """Return a new object of a class, without attributes: the class's own code is not run."""
    base: Any = _plain_base(kind)
    return base.__new__(kind)


def _plain_base(kind: type) -> type:
    return types.SimpleNamespace if issubclass(kind, types.SimpleNamespace) else object


def slots(kind: type) -> list[str]:
    """Return the attributes of a class's objects that are in no `__dict__`; Python remembers them."""
    return cast("list[str]", copyreg._slotnames(kind))  # type: ignore[attr-defined]  # typeshed leaves it out


def named_objects(module: nn.Module) -> set[int]:
    """Return the ids of what the files of a model's classes hold by name: there is one for everybody."""
    files = {kind.__module__ for part in {type(part) for part in module.modules()} for kind in part.__mro__}
    found: set[int] = set()
    for name in files:
        if name.partition(".")[0] not in ("torch", "builtins"):
            held = getattr(sys.modules.get(name), "__dict__", {})
            found.update(map(id, list(held.values())))
    return found

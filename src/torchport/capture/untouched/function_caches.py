"""Undoes what a model's functions cache during a run on fake tensors.

A function under `functools.lru_cache`, or one that fills a module-level or class-level dict, keeps its
results. After a run on fake tensors, it would return those to the model in a real run.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch import nn

from torchport.torch_private import FakeTensor, FunctionalTensor

_NESTED = 3  # the maximum nesting of functions or containers that are searched


@contextmanager
def nothing_remembered(module: nn.Module) -> Iterator[None]:
    """Clear, on exit, what a model's functions cached inside the context.

    Args:
        module: the model; its functions are those of its modules' classes and of the files that define these.
    """
    named = list(_named_values(module))
    cached = [(function, function.cache_info().misses) for function in _cached_functions(named)]
    held = {id(value): (value, value.copy()) for value in named if type(value) in (dict, list, set)}
    try:
        yield
    finally:
        for function, misses in cached:
            if function.cache_info().misses != misses:
                function.cache_clear()
        for value, before in held.values():
            if _is_fake(value) and not _is_fake(before):
                _restore(value, before)


def _named_values(module: nn.Module) -> Iterator[Any]:
    """Yield the attributes of a model's classes, the globals of their files, and the functions it holds."""
    parts = list(module.modules())
    functions = [held for part in parts for held in vars(part).values() if _is_function(held)]
    for held in [inner for function in functions for inner in _used_by(function)]:
        parts += held.modules() if isinstance(held, nn.Module) else ()
    kinds = {kind for part in {type(part) for part in parts} for kind in part.__mro__}
    own = [kind for kind in kinds if not _is_torchs(kind.__module__)]
    for kind in own:
        yield from list(vars(kind).values())
    yield from functions
    for name in {owner.__module__ for owner in (*own, *functions)}:
        yield from list(getattr(sys.modules.get(name), "__dict__", {}).values())


def _used_by(function: object) -> Iterator[object]:
    """Yield what a function or method uses besides its arguments and globals: `self` and its closure."""
    if isinstance(function, types.MethodType):
        yield function.__self__
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # an empty cell
            yield cell.cell_contents


def _is_torchs(name: str) -> bool:
    return name == "builtins" or name.partition(".")[0] == "torch"


def _is_function(value: object) -> bool:
    return isinstance(value, (types.FunctionType, types.MethodType, functools._lru_cache_wrapper))


def _cached_functions(values: Iterable[object]) -> list[functools._lru_cache_wrapper[object]]:
    """Return the functions under `lru_cache` among values, and those in the closures of other functions."""
    found: dict[int, functools._lru_cache_wrapper[object]] = {}
    for value in values:
        _search(value, found, _NESTED)
    return list(found.values())


def _search(value: object, found: dict[int, functools._lru_cache_wrapper[object]], nested: int) -> None:
    value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    value = value.fget if isinstance(value, property) else value
    if isinstance(value, functools._lru_cache_wrapper):
        found[id(value)] = value
    elif isinstance(value, types.FunctionType) and nested:
        for content in _used_by(value):
            if _is_function(content):
                _search(content, found, nested - 1)


def _is_fake(value: Any, nested: int = _NESTED) -> bool:
    """Whether a value is a tensor created by a trace, or a plain container of one.

    Containers of other classes are not searched, since iterating over them may run arbitrary code; nor are
    deeply nested ones, which may be cyclic.
    """
    if type(value) in (dict, list, tuple, set) and nested:
        items = list(value.values() if type(value) is dict else value)
        return any(_is_fake(item, nested - 1) for item in items)
    return isinstance(value, (FakeTensor, FunctionalTensor))


def _restore(value: Any, before: Any) -> None:
    if isinstance(value, list):
        value[:] = before
    else:
        value.clear()
        value.update(before)

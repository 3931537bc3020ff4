"""Redirects references to a model's parts to their copies: methods, closures, partials, weak references."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from torch import nn
from torch.utils.hooks import RemovableHandle

T = TypeVar("T")


class Copies(Protocol):
    """The copies of a model's parts, while they are being made."""

    def of(self, value: T) -> T:
        """Return the copy of a value, or the value itself if it is shared."""

    def note(self, value: object, made: object) -> None:
        """Register the copy of a value before its contents are copied, since these may refer to the value."""

    def later(self, fill: Callable[[], object]) -> None:
        """Schedule a callable that fills a copy."""


def _method(copies: Copies, value: types.MethodType) -> object:
    function, owner = copies.of(value.__func__), copies.of(value.__self__)
    same = function is value.__func__ and owner is value.__self__
    return value if same else types.MethodType(function, owner)


def _builtin_method(copies: Copies, value: types.BuiltinFunctionType) -> object:
    owner = copies.of(value.__self__)
    return value if owner is value.__self__ else getattr(owner, value.__name__)


def _partial(copies: Copies, value: functools.partial[object]) -> object:
    parts = [value.func, *value.args, *value.keywords.values(), *vars(value).values()]
    if all(copies.of(part) is part for part in parts):
        return value
    made = functools.partial(
        copies.of(value.func),
        *[copies.of(item) for item in value.args],
        **{name: copies.of(item) for name, item in value.keywords.items()},
    )
    vars(made).update({name: copies.of(item) for name, item in vars(value).items()})
    return made


def _cached(copies: Copies, value: functools._lru_cache_wrapper[object]) -> object:
    wrapped = value.__wrapped__
    inner = copies.of(wrapped)
    return value if inner is wrapped else functools.lru_cache(**value.cache_parameters())(inner)


def _function(copies: Copies, value: types.FunctionType) -> object:
    """Return a copy of a function with its own closure cells and module globals; itself, if it has none."""
    known = _globals(copies, value)
    if not value.__closure__ and known is value.__globals__:
        return value
    cells = tuple(copies.of(cell) for cell in value.__closure__ or ())
    made = types.FunctionType(value.__code__, known, value.__name__, value.__defaults__, cells)
    copies.note(value, made)
    made.__kwdefaults__ = value.__kwdefaults__
    made.__module__, made.__qualname__, made.__doc__ = value.__module__, value.__qualname__, value.__doc__
    copies.later(lambda: vars(made).update({name: copies.of(item) for name, item in vars(value).items()}))
    return made


def refers_to_modules(value: object) -> bool:
    """Whether a function may refer to modules through its closure or globals."""
    if not isinstance(value, types.FunctionType):
        return False
    for cell in value.__closure__ or ():
        try:
            if not isinstance(cell.cell_contents, type):  # a class is harmless: `super()` needs one
                return True
        except ValueError:  # an empty cell
            return True
    return any(isinstance(value.__globals__.get(name), nn.Module) for name in _names(value.__code__))


def _globals(copies: Copies, value: types.FunctionType) -> dict[str, Any]:
    """Return a function's globals, with copies of the modules that it uses by name."""
    known = value.__globals__
    used = {name: known[name] for name in _names(value.__code__) if isinstance(known.get(name), nn.Module)}
    return {**known, **{name: copies.of(module) for name, module in used.items()}} if used else known


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the names of globals that a function and its nested functions may use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _cell(copies: Copies, value: types.CellType) -> object:
    made = types.CellType()
    copies.note(value, made)

    def fill() -> None:
        try:
            made.cell_contents = copies.of(value.cell_contents)
        except ValueError:  # an empty cell
            return

    copies.later(fill)
    return made


def _weak(copies: Copies, value: weakref.ref[object]) -> object:
    target = value()
    made = copies.of(target)
    return value if made is target else weakref.ref(made)


def _proxy(copies: Copies, value: Any) -> object:
    try:
        target = value.__repr__.__self__  # a proxy forwards every attribute to its target
    except ReferenceError:
        return value
    made = copies.of(target)
    return value if made is target else weakref.proxy(made)


def _handle(copies: Copies, value: RemovableHandle) -> object:
    """Return a copy of a hook's handle: removing the hook during a run removes the copy's hook only."""
    made = object.__new__(RemovableHandle)
    copies.note(value, made)
    vars(made).update({name: copies.of(held) for name, held in vars(value).items()})
    return made


REFERENCES: dict[type, Callable[[Copies, Any], object]] = {
    types.MethodType: _method,
    types.BuiltinMethodType: _builtin_method,
    types.FunctionType: _function,
    types.CellType: _cell,
    functools.partial: _partial,
    functools._lru_cache_wrapper: _cached,
    weakref.ref: _weak,
    weakref.ProxyType: _proxy,
    weakref.CallableProxyType: _proxy,
    RemovableHandle: _handle,
}

"""Makes a stand-in for a model, for a capture to run: a copy of its modules that shares the model's tensors.

The caller's module is never modified. Whatever a forward writes to modules, lists, dicts and objects goes to
the stand-in's copies, and is discarded with them; other threads can keep using the model.
"""

from __future__ import annotations

import inspect
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy
import torch
from torch import nn

from torchport.capture.untouched.held_objects import empty_holder, is_holder, named_objects, slots
from torchport.capture.untouched.references import REFERENCES, refers_to_modules
from torchport.capture.untouched.scripted import copy_scripted, is_scripted
from torchport.errors import CaptureError

TensorMap = Callable[[torch.Tensor], torch.Tensor]
T = TypeVar("T")

_SHARED = frozenset(
    {type(None), bool, int, float, complex, str, bytes, type, range, slice, types.ModuleType, types.CodeType,
     numpy.ndarray, torch.dtype, torch.device, torch.Size, torch.Generator}
)  # fmt: skip
_MODULES_OWN = frozenset(vars(nn.Module()))
_CONTAINERS = (OrderedDict, defaultdict, dict, list, set, deque)  # subclasses before their bases


class StandIn:
    """A model's stand-in.

    Modules, lists, dicts and objects with attributes are copied, wherever the model holds them, each once, so
    sharing within the model is preserved. Methods, partial functions and closures that refer to them are
    redirected to the copies. Tensors are the model's own, or what `substitute` returns for them.

    Args:
        module: the model.
        substitute: returns the tensor to use in place of a tensor; replacements are cached.

    Raises:
        CaptureError: a module in it cannot be copied.

    Example:
        >>> stand_in = StandIn(torch.nn.Linear(2, 3))
        >>> stand_in.original(stand_in.module.weight) is stand_in.module.weight
        True
    """

    def __init__(self, module: nn.Module, substitute: TensorMap | None = None) -> None:
        self._substitute = substitute
        self._made: dict[int, tuple[object, object]] = {}  # original and copy, by the original's id
        self._pending: list[Callable[[], object]] = []
        self._forwards: dict[type[nn.Module], Callable[..., object] | None] = {}
        self._named = named_objects(module)
        self.module: nn.Module = self.of(module)
        while self._pending:  # not recursively: objects may be nested deeper than Python's recursion limit
            self._pending.pop()()
        self._originals = {id(made): original for original, made in self._made.values()}

    def original(self, value: T) -> T:
        """Return the original of a value of the stand-in; the value itself if it is shared with the model."""
        return cast("T", self._originals.get(id(value), value))

    def of(self, value: T) -> T:
        """Return the stand-in's counterpart of a value of the model."""
        kind = type(value)
        if kind in _SHARED:
            return value
        known = self._made.get(id(value))
        if known is None:
            made = self._make(value, kind)
            if made is value:
                return value
            self.note(value, made)
            return cast("T", made)
        return cast("T", known[1])

    def note(self, value: object, made: object) -> None:
        """Register the copy of a value."""
        self._made[id(value)] = (value, made)

    def later(self, fill: Callable[[], object]) -> None:
        """Schedule a callable that fills a copy."""
        self._pending.append(fill)

    def _make(self, value: Any, kind: type) -> object:
        if kind in _CONTAINERS:
            return self._container(value, kind, kind)
        if kind in REFERENCES:  # before the others: isinstance takes a weak proxy for its target
            return REFERENCES[kind](self, value)
        if isinstance(value, torch.Tensor):
            return value if self._substitute is None else self._substitute(value)
        if isinstance(value, nn.Module):
            return self._module(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        if id(value) in self._named:
            return value
        for base in _CONTAINERS:
            if isinstance(value, base):
                return self._container(value, kind, base)
        return self._object(value) if is_holder(value, kind) else value

    def _module(self, module: nn.Module) -> nn.Module:
        try:
            made = object.__new__(type(module))  # its own constructor may do anything
        except TypeError as error:
            raise CaptureError(
                f"a module of class {type(module).__name__} cannot be copied: {error}",
                remedy="derive the class from torch.nn.Module and ordinary Python classes only",
            ) from error
        self.note(module, made)
        if is_scripted(module):
            copy_scripted(module, made, self.of)
        else:
            self.later(lambda: self._fill_module(module, made))
        return made

    def _fill_module(self, module: nn.Module, made: nn.Module) -> None:
        """Fill a module's copy, with a fast path for empty dicts: most of a module's attributes are."""
        attributes = vars(made)
        for name, held in dict(vars(module)).items():
            kind = type(held)
            if kind in _SHARED:
                attributes[name] = held
            elif name in _MODULES_OWN and not held:
                attributes[name] = kind()
            else:
                attributes[name] = self.of(held)
        self._fill_slots(module, made)
        forward = self._forward_of(type(module))
        if forward is not None and "forward" not in attributes:
            attributes["forward"] = types.MethodType(forward, made)

    def _forward_of(self, kind: type[nn.Module]) -> Callable[..., object] | None:
        """Return a copy of a class's forward for its stand-ins, if it refers to other modules; else None."""
        if kind not in self._forwards:
            own = inspect.getattr_static(kind, "forward")
            self._forwards[kind] = self.of(own) if refers_to_modules(own) else None
        return self._forwards[kind]

    def _object(self, value: Any) -> object:
        made = empty_holder(type(value))
        self.note(value, made)
        self.later(lambda: self._fill_object(value, made))
        return made

    def _fill_object(self, value: object, made: object) -> None:
        attributes = getattr(made, "__dict__", {})
        for name, held in dict(getattr(value, "__dict__", {})).items():
            attributes[name] = self.of(held)
        self._fill_slots(value, made)

    def _fill_slots(self, value: Any, made: object) -> None:
        for name in slots(type(value)):
            if hasattr(value, name):
                object.__setattr__(made, name, self.of(getattr(value, name)))

    def _container(self, value: Any, kind: Any, base: Any) -> object:
        made = base.__new__(kind)
        self.note(value, made)
        if base is defaultdict:
            base.__init__(made, self.of(value.default_factory))
        elif base is deque:
            base.__init__(made, (), value.maxlen)
        if len(value):
            self.later(lambda: self._fill_container(value, made, base))
        if kind is not base:
            self.later(lambda: self._fill_object(value, made))
        return made

    def _fill_container(self, value: Any, made: Any, base: Any) -> None:
        """Fill a container's copy with the base class's methods: overridden ones may do anything."""
        if issubclass(base, dict):
            for key, item in list(base.items(value)):
                base.__setitem__(made, self._key(key), self.of(item))
        elif base is set:
            base.update(made, [self._key(item) for item in list(base.__iter__(value))])
        else:
            base.extend(made, [self.of(item) for item in list(base.__iter__(value))])

    def _key(self, key: T) -> T:
        """Return the copy of a key that is a module or tensor, else the key: unfilled copies have no hash."""
        return self.of(key) if isinstance(key, (nn.Module, torch.Tensor)) else key

    def _tuple(self, value: tuple[object, ...]) -> tuple[object, ...]:
        items = [item if type(item) in _SHARED else self.of(item) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else tuple.__new__(type(value), items)

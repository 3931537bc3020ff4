"""Makes a stand-in for a model: modules of its own, which share the model's tensors, for a capture to run.

Nothing is ever put into the caller's module. Whatever a forward writes to modules, lists, dicts and objects
is written to the stand-in's, and is gone with it; other threads go on with a model that nobody touches.
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
_CONTAINERS = (OrderedDict, defaultdict, dict, list, set, deque)  # the most special ones first


class StandIn:
    """A model's stand-in.

    Modules, lists, dicts and objects with attributes are copied, wherever the model holds them, each once:
    what is shared in the model is shared in the stand-in. Methods, partial functions and closures that refer
    to them refer to the copies. Tensors are the model's own, or what `substitute` gives for them.

    Args:
        module: the model.
        substitute: gives the tensor to use in place of one; asked once for each.

    Raises:
        CaptureError: a module in it cannot be copied.

    Example:
        >>> stand_in = StandIn(torch.nn.Linear(2, 3))
        >>> stand_in.original(stand_in.module.weight) is stand_in.module.weight
        True
    """

    def __init__(self, module: nn.Module, substitute: TensorMap | None = None) -> None:
        self._substitute = substitute
        self._made: dict[int, tuple[object, object]] = {}  # by the original's id: the original, and its copy
        self._pending: list[Callable[[], object]] = []
        self._forwards: dict[type[nn.Module], Callable[..., object] | None] = {}
        self._named = named_objects(module)
        self.module: nn.Module = self.of(module)
        while self._pending:  # not by recursion: what a model holds may be nested deeper than that goes
            self._pending.pop()()
        self._originals = {id(made): original for original, made in self._made.values()}

    def original(self, value: T) -> T:
        """Return what a value of the stand-in stands for; itself, if the model holds it too."""
        return cast("T", self._originals.get(id(value), value))

    def of(self, value: T) -> T:
        """Return what stands for a value of the model."""
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
        """Note down what stands for a value."""
        self._made[id(value)] = (value, made)

    def later(self, fill: Callable[[], object]) -> None:
        """Have a copy filled later."""
        self._pending.append(fill)

    def _make(self, value: Any, kind: type) -> object:
        if kind in _CONTAINERS:
            return self._container(value, kind, kind)
        if kind in REFERENCES:  # before the others: a weak reference says that it is what it refers to
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
                f"a {type(module).__name__} cannot be copied: {error}",
                remedy="derive its class from torch.nn.Module and other classes of Python's own kind alone",
            ) from error
        self.note(module, made)
        if is_scripted(module):
            copy_scripted(module, made, self.of)
        else:
            self.later(lambda: self._fill_module(module, made))
        return made

    def _fill_module(self, module: nn.Module, made: nn.Module) -> None:
        """Fill a module's copy: most of what each of hundreds of modules holds are empty dicts."""
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
        """Return a forward for copies of a class's modules, where the class's own refers to other modules."""
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
        """Put into a copy what a container holds, by its base's methods: its own may do anything."""
        if issubclass(base, dict):
            for key, item in list(base.items(value)):
                base.__setitem__(made, self._key(key), self.of(item))
        elif base is set:
            base.update(made, [self._key(item) for item in list(base.__iter__(value))])
        else:
            base.extend(made, [self.of(item) for item in list(base.__iter__(value))])

    def _key(self, key: T) -> T:
        """Return what stands for a key; most keys are values, and an unfilled copy has no hash."""
        return self.of(key) if isinstance(key, (nn.Module, torch.Tensor)) else key

    def _tuple(self, value: tuple[object, ...]) -> tuple[object, ...]:
        items = [item if type(item) in _SHARED else self.of(item) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else tuple.__new__(type(value), items)

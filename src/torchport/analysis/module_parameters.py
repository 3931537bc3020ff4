"""Reads the arguments that a module was constructed with, as far as it stores them."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy
import torch
from torch import nn

from torchport.capture import tensor_spec
from torchport.records import shape_text

# A module's device and dtype do not change what it computes, and its inputs and outputs have dtypes.
_PLACEMENT = frozenset({"device", "dtype", "_weight", "_bias"})
_DEEPEST = 5
_EVERY_MODULE = frozenset(vars(nn.Module()))
_MISSING = object()


class ParameterReader:
    """Reads modules' constructor arguments; an object that modules share, such as a configuration, once."""

    def __init__(self) -> None:
        self._objects: dict[int, tuple[object, object]] = {}

    def read(self, module: nn.Module) -> dict[str, object]:
        """Return a module's arguments by name, as JSON values.

        Example:
            >>> ParameterReader().read(torch.nn.Linear(2, 3))
            {'in_features': 2, 'out_features': 3, 'bias': True}
        """
        found: dict[str, object] = {}
        for name in _argument_names(type(module)):
            value = _kept(module, name)
            if value is not _MISSING:
                found[name] = self._plain(value, 0)
        return found

    def _plain(self, value: object, depth: int) -> object:
        simple = plain_value(value)
        if simple is not _MISSING:
            return simple
        if depth >= _DEEPEST:
            return f"<{type(value).__name__}>"
        if isinstance(value, Mapping):
            return {str(key): self._plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, Sequence):
            return [self._plain(item, depth + 1) for item in value]
        if isinstance(value, AbstractSet):
            return sorted(str(item) for item in value)
        if id(value) not in self._objects:
            self._objects[id(value)] = (value, self._object(value, depth))
        return self._objects[id(value)][1]

    def _object(self, value: object, depth: int) -> object:
        """Return an object as its class and public attributes, so that objects with other contents differ."""
        content: Mapping[str, object]
        if dataclasses.is_dataclass(value):
            content = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        else:
            content = getattr(value, "__dict__", {})
        public = {name: item for name, item in content.items() if not name.startswith("_")}
        entries = {name: self._plain(item, depth + 1) for name, item in public.items()}
        return {"class": type(value).__name__, **entries}


def plain_value(value: object) -> object:
    """Return the JSON value of a scalar, tensor, module or function; `_MISSING` for anything else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, torch.Tensor):
        spec = tensor_spec(value)
        return {"shape": shape_text(spec.shape), "dtype": spec.dtype}
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value).removeprefix("torch.")
    if isinstance(value, (torch.device, torch.Generator, complex)):
        return str(value)
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, nn.Module):
        return type(value).__name__
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return _MISSING


def is_plain(value: object) -> bool:
    """Return whether `plain_value` could convert the value that it returned."""
    return value is not _MISSING


def _argument_names(kind: type) -> Iterator[str]:
    """Yield a class's constructor arguments; if it takes `*args` or `**kwargs`, those of its base too."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if base is nn.Module or base is object:
            return
        if "__init__" not in vars(base):
            continue
        try:
            parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        except (TypeError, ValueError):
            return
        variadic = False
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                variadic = True
            elif parameter.name not in seen and parameter.name not in _PLACEMENT:
                seen.add(parameter.name)
                yield parameter.name
        if not variadic:
            return


def _kept(module: nn.Module, name: str) -> object:
    """Return the value that a module stores for an argument; for a parameter or buffer, whether it exists."""
    for held in (module._parameters, module._buffers):
        if name in held:
            return held[name] is not None
    if name in module._modules:
        return _MISSING if module._modules[name] is not None else None  # submodules have entries of their own
    for spelling in (name, f"_{name}"):
        if spelling in vars(module) and spelling not in _EVERY_MODULE:
            return vars(module)[spelling]
    if "parametrizations" in module._modules and hasattr(module._modules["parametrizations"], name):
        return True
    return _MISSING

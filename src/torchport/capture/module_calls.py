"""Tracks which module is running, and records the inputs and outputs of each module call."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from torchport.capture.tensor_specs import tensor_spec
from torchport.records import TensorSpec


@dataclass(slots=True, eq=False)
class ModuleCall:
    """One call of a module.

    Args:
        path: the module's path; empty for the model itself.
        module: the module.
        inputs: the tensors passed to it, each with its name.
        outputs: the tensors that it returned.
    """

    path: str
    module: nn.Module
    inputs: tuple[tuple[str, TensorSpec], ...]
    outputs: tuple[TensorSpec, ...] = ()
    # How often this call has called each module, by id: tells the paths of a shared module apart.
    counts: dict[int, int] = field(default_factory=dict)


class ModuleCalls:
    """Records module calls through hooks on every module.

    Args:
        root: a model's stand-in; the hooks are never removed from it.
    """

    def __init__(self, root: nn.Module) -> None:
        self.calls: list[ModuleCall] = []
        self.recording = True
        self._stack: list[ModuleCall] = []
        self._paths: dict[int, list[str]] = {}
        self._names: dict[type[nn.Module], tuple[str, ...]] = {}  # the argument names of each class's forward
        for path, module in root.named_modules(remove_duplicate=False):
            if id(module) not in self._paths:
                self._listen(module)
            self._paths.setdefault(id(module), []).append(path)

    @property
    def current(self) -> ModuleCall | None:
        """The innermost call in progress, if any."""
        return self._stack[-1] if self._stack else None

    def _listen(self, module: nn.Module) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            return  # it does not support hooks: its ops are attributed to the module that calls it
        # Around the user's own hooks, so that their ops count as the module's.
        module.register_forward_pre_hook(self._begin, prepend=True, with_kwargs=True)
        module.register_forward_hook(self._end)

    def run(self, root: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Call the model."""
        if not isinstance(root, torch.jit.ScriptModule):
            return root(*args, **kwargs)
        self._begin(root, args, kwargs)
        result = root(*args, **kwargs)
        self._end(root, args, result)
        return result

    def _begin(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        kind = type(module)
        if kind not in self._names:
            self._names[kind] = _argument_names(kind)
        inputs = tuple(_named_tensors(self._names[kind], args, kwargs))
        call = ModuleCall(self._path(module), module, inputs)
        self._stack.append(call)
        if self.recording:
            self.calls.append(call)

    def _end(self, module: nn.Module, _: object, result: object) -> None:
        while self._stack:
            call = self._stack.pop()
            if call.module is module:
                call.outputs = tuple(tensor_spec(tensor) for _, tensor in walk_tensors(result, ""))
                return

    def _path(self, module: nn.Module) -> str:
        """Return the path by which a module is called; a shared module has several."""
        paths = self._paths[id(module)]
        caller = self.current
        if len(paths) == 1 or caller is None:
            return paths[0]
        prefix = f"{caller.path}." if caller.path else ""
        below = [path for path in paths if path.startswith(prefix)] or paths
        number = caller.counts.get(id(module), 0)
        caller.counts[id(module)] = number + 1
        return below[number % len(below)]


def _argument_names(kind: type[nn.Module]) -> tuple[str, ...]:
    """Return the names of the positional parameters of a module class's forward."""
    try:
        parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
    except (AttributeError, TypeError, ValueError):  # a scripted module has no signature
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in positional)


def _named_tensors(
    names: tuple[str, ...], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Iterator[tuple[str, TensorSpec]]:
    for index, value in enumerate(args):
        name = names[index] if index < len(names) else str(index)
        for path, tensor in walk_tensors(value, name):
            yield path, tensor_spec(tensor)
    for name, value in kwargs.items():
        for path, tensor in walk_tensors(value, name):
            yield path, tensor_spec(tensor)


def walk_tensors(value: object, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a value with their paths.

    Only plain containers are traversed. A KV cache that is passed to every layer contains what earlier layers
    stored in it: that is the model's state, not an input of the layer.
    """
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from walk_tensors(item, f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from walk_tensors(item, f"{path}.{key}" if path else str(key))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for entry in dataclasses.fields(value):
            yield from walk_tensors(
                getattr(value, entry.name, None), f"{path}.{entry.name}" if path else entry.name
            )

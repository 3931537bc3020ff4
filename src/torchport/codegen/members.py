"""Writes the members of a generated class: code that creates its modules, parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from torchport.codegen.code import Code, Group, Literal, call, text
from torchport.codegen.constants import constant, number
from torchport.codegen.constructors import constructor_arguments, is_required
from torchport.codegen.imports import Imports
from torchport.codegen.places import Places, find_module, find_tensor, find_used, is_list

_BY_NAME = ("kernel_size",)  # passed by keyword, though it has no default
INLINED_ELEMENTS = 16


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a class.

    Args:
        name: its attribute.
        code: the code that creates it.
        statement: whether `code` is a complete statement rather than a value to assign.
    """

    name: str
    code: Code
    statement: bool = False


class MemberWriter:
    """Writes the code that creates the members of classes.

    Args:
        places: where modules and weights are in the generated classes.
        imports: the file's imports.
        instance: returns the code that creates the instance of a generated class at a path.
    """

    def __init__(self, places: Places, imports: Imports, instance: Callable[[str], Code]) -> None:
        self._places = places
        self._imports = imports
        self._instance = instance

    def members(self, owner: str, modules: list[str], weights: list[str], inlined: set[str]) -> list[Member]:
        """Return the members of the class at a path.

        Args:
            owner: the path of the class.
            modules: the paths of the modules that it holds.
            weights: the paths of the parameters and buffers that it holds directly.
            inlined: the weights whose values are written into the code.
        """
        found: dict[str, Member] = {}
        for path in modules:
            first, *rest = self._places.segments(path)
            name = first.name
            if name in found:
                continue
            code = self._list(self._container(owner, path), modules) if rest else self.module(path)
            found[name] = Member(name, code)
        members = list(found.values())
        return members + [self._weight(path, path in inlined) for path in weights]

    def module(self, path: str) -> Code:
        """Return the code that creates the module at a path."""
        path = self._places.aliases.get(path, path)
        if path in self._places.classes:
            return self._instance(path)
        if path in self._places.chains:
            return self._chain(path)
        module = find_used(self._places.graph, self._places.model, path)
        if module is None:
            return call(("nn.Identity",), [])
        return self.constructor(module)

    def constructor(self, module: nn.Module) -> Code:
        """Return the constructor call for one of torch's own modules."""
        arguments = constructor_arguments(module)
        args: list[Code] = []
        positional = True
        for name, value in arguments.items():
            code = self._value(value, name)
            positional = positional and is_required(type(module), name) and name not in _BY_NAME
            args.append(code if positional else (f"{name}=", *code))
        return call((self._imports.module_class(type(module)),), args)

    def _value(self, value: object, name: str) -> Code:
        if isinstance(value, nn.Module):
            return self.constructor(value)
        return constant(value, self._imports, name)

    def _chain(self, path: str) -> Code:
        module = find_module(self._places.model, path)
        assert isinstance(module, nn.Sequential)
        items = {name: self._part(f"{path}.{name}") for name in module._modules}
        if all(name.isdigit() for name in items):
            return ("nn.Sequential", Group("(", tuple(items.values()), ")", modules=True))
        self._imports.use("collections", "OrderedDict")
        entries = tuple((Group("(", ((text(name),), code), ")"),) for name, code in items.items())
        return call(("nn.Sequential",), [call(("OrderedDict",), [(Group("[", entries, "]", literal=True),)])])

    def _part(self, path: str) -> Code:
        if path in self._places.used or path in self._places.classes or path in self._places.chains:
            return self.module(path)
        return call(("nn.Identity",), [])

    def _container(self, owner: str, path: str) -> str:
        """Return the path of the outermost container in a class that contains a module."""
        names = path[len(owner) + 1 if owner else 0 :].split(".")
        current = owner
        for name in names:
            current = f"{current}.{name}" if current else name
            if self._is_container(current):
                return current
        return path

    def _list(self, path: str, modules: list[str]) -> Code:
        container = find_module(self._places.model, path)
        if path in self._places.chains or path in self._places.classes:
            return self.module(path)
        assert isinstance(container, (nn.ModuleList, nn.ModuleDict, nn.Sequential)), path
        parts: dict[str, Code] = {}
        for name in container._modules:
            part = f"{path}.{name}"
            inside = [other for other in modules if other == part or other.startswith(part + ".")]
            if inside and part not in inside and self._is_container(part):
                parts[name] = self._list(part, modules)
            elif inside:
                parts[name] = self.module(part)
            elif not isinstance(container, nn.ModuleDict):
                parts[name] = call(("nn.Identity",), [])
        if isinstance(container, nn.ModuleDict):
            entries = tuple((text(name), ": ", *code) for name, code in parts.items())
            return call(("nn.ModuleDict",), [(Group("{", entries, "}", literal=True),)])
        items = Group("[", tuple(parts.values()), "]", modules=True, literal=True)
        return call(("nn.ModuleList",), [(items,)])

    def _is_container(self, path: str) -> bool:
        module = find_module(self._places.model, path)
        return isinstance(module, nn.ModuleDict) or is_list(module) or path in self._places.chains

    def _weight(self, path: str, inlined: bool) -> Member:
        tensor = find_tensor(self._places.graph, self._places.model, path)
        name = self._places.segments(path)[-1].name
        if inlined:
            values = constant(tensor.tolist(), self._imports, name)
            made = call(("torch.tensor",), [values, (f"dtype={tensor.dtype}",)])
            registered = call(("self.register_buffer",), [(text(name),), made, ("persistent=False",)])
            return Member(name, registered, statement=True)
        sizes: list[Code] = [(Literal(number(size), f"{name}_size"),) for size in tensor.shape] or [("()",)]
        if isinstance(tensor, nn.Parameter):
            if tensor.dtype != torch.float32:
                sizes.append((f"dtype={tensor.dtype}",))
            args: list[Code] = [call(("torch.empty",), sizes)]
            if not tensor.requires_grad or not tensor.is_floating_point():
                args.append(("requires_grad=False",))
            return Member(name, call(("nn.Parameter",), args))
        if tensor.dtype != torch.float32:
            sizes.append((f"dtype={tensor.dtype}",))
        registered = call(("self.register_buffer",), [(text(name),), call(("torch.empty",), sizes)])
        return Member(name, registered, statement=True)

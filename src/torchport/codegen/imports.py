"""The imports of a generated file, and the names by which it refers to functions and classes."""

from __future__ import annotations

import builtins
import functools
import importlib
import sys

import torch
import torch.nn.functional
from torch import nn

from torchport.codegen.code import WIDTH, is_name
from torchport.errors import CodegenError
from torchport.torch_private import (
    OpOverload,
    OpOverloadPacket,
    custom_op_module,
    overload_name,
    qualified_name,
)

_HOMES = (
    ("F", torch.nn.functional),
    ("torch", torch),
    ("torch.linalg", torch.linalg),
    ("torch.fft", torch.fft),
    ("torch.special", torch.special),
    ("nn.init", torch.nn.init),
    ("nn.utils.rnn", torch.nn.utils.rnn),
)


@functools.cache
def _public_names() -> dict[int, str]:
    """Return the names of torch's functions, keyed by id; earlier entries of `_HOMES` take precedence."""
    names: dict[int, str] = {}
    for private in (False, True):
        for prefix, module in _HOMES:
            for name, value in vars(module).items():
                if callable(value) and name.startswith("_") == private and not isinstance(value, type):
                    names.setdefault(id(value), f"{prefix}.{name}")
    return names


class Imports:
    """Collects the imports of a file."""

    def __init__(self) -> None:
        self.taken: dict[str, object] = {}
        self._lines: dict[str, set[str]] = {}
        self._modules: set[str] = set()
        self.uses_functional = False
        self.assembles = False

    def name_of(self, value: object) -> str:
        """Return the name of a function or class in the file, importing it if necessary.

        Raises:
            CodegenError: it cannot be imported.
        """
        own = str(getattr(value, "__name__", ""))
        if getattr(builtins, own, None) is value:
            return own
        if isinstance(value, OpOverload):
            return self._custom_op(
                value, f"torch.ops.{value._schema.name.replace('::', '.')}.{overload_name(value)}"
            )
        if isinstance(value, OpOverloadPacket):
            return self._custom_op(value, f"torch.ops.{qualified_name(value).replace('::', '.')}")
        known = _public_names().get(id(value))
        return known if known is not None else self._import(value)

    def module_class(self, kind: type) -> str:
        """Return the name of one of torch's module classes in the file, importing it if necessary."""
        if getattr(nn, kind.__name__, None) is kind:
            return f"nn.{kind.__name__}"
        return self._import(kind)

    def use(self, module: str, name: str) -> None:
        """Import a name from a module."""
        self.taken[name] = module
        self._lines.setdefault(module, set()).add(name)

    def third_party(self, words: set[str], *, safetensors: bool) -> list[str]:
        """Return the lines that import torch and other packages, in ruff's order.

        Args:
            words: the words of the file: names that are not among them are not imported.
            safetensors: whether the weights are loaded with safetensors.
        """
        froms = {module: {name for name in names if name in words} for module, names in self._lines.items()}
        froms.pop("collections", None)
        froms.setdefault("torch", set()).add("nn")
        if safetensors:
            froms["safetensors.torch"] = {"load_file"}
        plain = {"torch": "import torch", **{name: f"import {name}" for name in self._modules}}
        if self.uses_functional:
            plain["torch.nn.functional"] = "import torch.nn.functional as F"
        imported = [plain[name] for name in sorted(plain)]
        for module, found in sorted(froms.items()):
            if found:
                imported += _from_lines(module, sorted(found))
        return imported

    def _custom_op(self, op: OpOverload | OpOverloadPacket, name: str) -> str:
        """Return an op's name, and import the module that registers it."""
        qualified = qualified_name(op)
        namespace = qualified.split("::")[0]
        if namespace in ("aten", "prims"):
            return name
        from torchport.torch_private import OPDEFS

        module = custom_op_module(OPDEFS.get(qualified))
        if not module and namespace in sys.modules:
            module = namespace
        if not module or module == "__main__" or not _is_path(module) or not _is_path(name):
            raise CodegenError(
                f"the custom op {qualified} is not defined in a module that can be imported",
                remedy="define it in a module of its own",
            )
        if not module.startswith("torch."):
            self._modules.add(module)
        return name

    def _import(self, value: object) -> str:
        module = getattr(value, "__module__", None)
        name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
        if not module or module == "__main__" or not _is_path(module) or not _is_path(name):
            raise _not_importable(value)
        try:
            found: object = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            found = None
        if found is not value:
            raise _not_importable(value)
        if module in ("torch", "torch.return_types"):  # unqualified, `max` would be the builtin
            return f"{module}.{name}"
        first = name.split(".")[0]
        if self.taken.setdefault(first, module) != module:
            self._modules.add(module)
            return f"{module}.{name}"
        self._lines.setdefault(module, set()).add(first)
        return str(name)


def _is_path(text: str) -> bool:
    """Whether a text is a valid dotted name in code; a module's file name need not be."""
    return all(is_name(part) for part in text.split("."))


def _from_lines(module: str, names: list[str]) -> list[str]:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return [line]
    return [f"from {module} import (", *[f"    {name}," for name in names], ")"]


def _not_importable(value: object) -> CodegenError:
    name = getattr(value, "__qualname__", repr(value))
    return CodegenError(
        f"{name} cannot be imported by the generated file",
        remedy="define it at the top level of a module that can be imported",
    )

"""Maps the modules and weights of a model to their places in the generated classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import fx, nn

from torchport.codegen.code import Code, identifier, is_name, text
from torchport.codegen.scopes import Scope
from torchport.errors import CodegenError


@dataclass(frozen=True, slots=True)
class Segment:
    """One step of the access path to a part.

    Args:
        name: its name in the keys of the weights file.
        code: its code, such as `.layer1`, `[0]` or `["class"]`.
    """

    name: str
    code: str


# Attributes that generated classes inherit from `nn.Module` and must not override.
_RESERVED = frozenset(dir(nn.Module())) | {"forward"}


@dataclass(slots=True)
class Places:
    """The places of a model's parts.

    Args:
        model: the model.
        graph: its graph, which holds the modules and weights that it uses.
        classes: the paths of modules that become classes; the model's own path is empty.
        chains: the paths of modules that become `nn.Sequential`.
        whole: the paths of modules that are kept as they are.
        hierarchy: whether there are classes for submodules.
        used: the paths of modules that are called.
        aliases: paths that refer to the module at another path.
    """

    model: nn.Module
    graph: fx.GraphModule
    classes: set[str]
    chains: set[str]
    whole: set[str]
    hierarchy: bool
    used: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    _dissolved: dict[str, bool] = field(default_factory=dict)

    def owner_of(self, path: str) -> str:
        """Return the path of the class that holds a part: the nearest enclosing one."""
        parent = path
        while parent:
            parent = parent.rpartition(".")[0]
            if parent in self.classes:
                return parent
        return ""

    def segments(self, path: str) -> list[Segment]:
        """Return the access path of a part from its class, such as `.layer1` and `[0]`."""
        owner = self.owner_of(path)
        names = path[len(owner) + 1 if owner else 0 :].split(".")
        found: list[Segment] = []
        current, held = owner, ""
        for position, name in enumerate(names):
            above = current
            current = f"{above}.{name}" if above else name
            if position and (above in self.whole or above in self.chains or self._is_list(above)):
                found.append(self._member(above, name))
            elif position and self._is_dict(above):
                found.append(Segment(name, f"[{text(name)}]"))
            else:  # a module that only holds others: its name is merged into theirs
                held = f"{held}.{name}" if position else name
                attribute = self._attribute(owner, held)
                found[-1:] = [Segment(attribute, f".{attribute}")]
        return found

    def _member(self, container: str, name: str) -> Segment:
        """Return the access path step to a child of one of torch's own modules."""
        module = find_module(self.model, container)
        if container in self.whole or not isinstance(module, (nn.ModuleList, nn.Sequential)):
            return Segment(name, f".{own_name(name, container)}")
        place = list(module._modules).index(name)
        if is_list(module):
            return Segment(str(place), f"[{place}]")  # recreated, so renumbered from 0
        return Segment(name, f".{name}" if is_name(name) else f"[{place}]")

    def _attribute(self, owner: str, held: str) -> str:
        """Return a unique attribute of a class for the dotted name that a part has in the model."""
        known = self.attributes.setdefault(owner, {})
        if held not in known:
            wanted = candidate = identifier(held) if not is_name(held) else held
            number = 2
            while candidate in known.values() or candidate in _RESERVED:
                candidate = f"{wanted}_{number}"
                number += 1
            known[held] = candidate
        return known[held]

    def code(self, scope: Scope, path: str) -> Code:
        """Return the code by which a scope refers to the part at a path."""
        return ("self" + self.route_code(scope.path, path),)

    def route_code(self, start: str, path: str) -> str:
        """Return the access path of a part from the class at `start`, as code."""
        return "".join(segment.code for segment in self.route(start, path))

    def route(self, start: str, path: str) -> list[Segment]:
        """Return the access path of a part from the class at `start`."""
        chain: list[Segment] = []
        while path != start:
            owner = self.owner_of(path)
            chain = self.segments(path) + chain
            if not path or (owner == "" and start != ""):
                break
            path = owner
        return chain

    def within(self, scope_path: str, path: str) -> str:
        """Return the path by which a scope refers to a module: a path of its own for a shared module."""
        if not scope_path or path.startswith(scope_path + "."):
            return path
        return self.aliases_of(scope_path, path)

    def aliases_of(self, scope_path: str, path: str) -> str:
        """Return a path inside a scope that is an alias of a module outside of it."""
        module = find_module(self.model, path)
        every: Iterable[tuple[str, nn.Module]] = self.model.named_modules(remove_duplicate=False)
        for other, found in every:
            if found is module and other.startswith(scope_path + "."):
                self.aliases[other] = path
                return other
        made = f"{scope_path}.{path.rpartition('.')[2]}"
        self.aliases[made] = path
        return made

    def _is_list(self, path: str) -> bool:
        if not self.hierarchy or path in self.classes or not is_list(find_module(self.model, path)):
            return False
        return not self._is_dissolved(path)

    def _is_dict(self, path: str) -> bool:
        if not self.hierarchy or not isinstance(find_module(self.model, path), nn.ModuleDict):
            return False
        return not self._is_dissolved(path)

    def _is_dissolved(self, path: str) -> bool:
        """Whether a container holds a module that does not occur in the code, though its children do.

        This happens if `layer.forward(x)` is called instead of `layer(x)`: nothing can be put in the list.
        """
        if path not in self._dissolved:
            inside = path + "."
            self._dissolved[path] = any(
                self._is_in_holder(path, used[len(inside) :].split("."))
                for used in self.used
                if used.startswith(inside)
            )
        return self._dissolved[path]

    def _is_in_holder(self, container: str, names: list[str]) -> bool:
        for name in names:
            container = f"{container}.{name}"
            if container in self.used or container in self.classes or container in self.chains:
                return False
            module = find_module(self.model, container)
            if not isinstance(module, nn.ModuleDict) and not is_list(module):
                return True
        return False

    def key(self, path: str) -> str:
        """Return a weight's name in the weights file."""
        return ".".join(segment.name for segment in self.route("", path))


def own_name(name: str, path: str) -> str:
    """Return the name of a part of one of torch's own modules, which is an identifier in each of them.

    Raises:
        CodegenError: it is not, so the model has registered it there, and no constructor makes it.
    """
    if not is_name(name):
        raise CodegenError(
            f"{name!r} is registered on {path}, a module of torch's own, which does not make it",
            remedy="register it on a module of your own",
        )
    return name


def is_list(module: nn.Module | None) -> bool:
    """Whether a module is a list or sequential with numbered children."""
    return isinstance(module, (nn.ModuleList, nn.Sequential)) and all(map(str.isdigit, module._modules))


def find_module(model: nn.Module, path: str) -> nn.Module | None:
    """Return the module at a path; None if there is none."""
    found: object = model
    for name in path.split(".") if path else ():
        found = getattr(found, name, None)
        if found is None:
            return None
    return found if isinstance(found, nn.Module) else None


def find_used(graph: fx.GraphModule, model: nn.Module, path: str) -> nn.Module | None:
    """Return the module that a graph calls at a path: the graph's own, which may have been replaced."""
    found = find_module(graph, path)
    # A graph holds a plain nn.Module where it uses only a weight.
    return found if found is not None and type(found) is not nn.Module else find_module(model, path)


def find_tensor(graph: fx.GraphModule, model: nn.Module, path: str) -> torch.Tensor:
    """Return the weight at a path."""
    for root in (graph, model):
        found: object = root
        for name in path.split("."):
            found = getattr(found, name, None)
        if isinstance(found, torch.Tensor):
            return found
    raise KeyError(path)

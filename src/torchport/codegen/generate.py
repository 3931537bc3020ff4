"""Turns a graph of calls into the classes of a file and the weights that they load."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx, nn

from torchport.codegen.body import Body, BodyContext, write_body
from torchport.codegen.chains import find_chains
from torchport.codegen.classes import ClassDefinition, Instance, class_name, define_class
from torchport.codegen.code import Code, shape
from torchport.codegen.constants import number
from torchport.codegen.imports import Imports
from torchport.codegen.members import INLINED_ELEMENTS, Member, MemberWriter
from torchport.codegen.places import Places, find_module, find_tensor, find_used, own_name
from torchport.codegen.scopes import Scope, build_scopes


@dataclass(frozen=True, slots=True)
class Generated:
    """The result of generating code from a graph.

    Args:
        classes: the classes in dependency order; the last is the model.
        imports: the file's imports.
        weights: the tensors of the weights file, by their names in it.
        ties: pairs of tied parts: the first is assigned the second.
        lengths: the lengths of each class's module lists.
    """

    classes: list[ClassDefinition]
    imports: Imports
    weights: dict[str, torch.Tensor]
    ties: list[tuple[str, str]]
    lengths: dict[str, dict[str, int]]


class Generator:
    """Generates classes from a graph.

    Args:
        graph: the graph.
        model: the model that it was captured from.
        name: the name of the model's class.
        hierarchy: whether submodules become classes.
        shapes: whether to add the shapes of results as comments.
    """

    def __init__(
        self, graph: fx.GraphModule, model: nn.Module, name: str, *, hierarchy: bool, shapes: bool
    ) -> None:
        self._graph = graph
        self._model = model
        self._name = name
        self._imports = Imports()
        self._imports.taken[name] = ""
        self._top = build_scopes(graph.graph, hierarchy=hierarchy)
        self._scopes: dict[str, list[Scope]] = defaultdict(list)
        chains = find_chains(self._top, model) if hierarchy else set()
        for scope in self._top.scopes():
            if scope.path not in chains:
                self._scopes[scope.path].append(scope)
        self._places = Places(graph, graph, {"", *self._scopes}, chains, set(), hierarchy)
        self._places.model = model
        self._own_weights = {id(weight) for weight in (*model.parameters(), *model.buffers())}
        self._methods: dict[int, str] = {}
        self._definitions: dict[str, ClassDefinition] = {}
        self._context = BodyContext(
            self._imports, self._module_code, self._places.code, self._method_of, shapes=shapes
        )
        self._find_parts()

    def _find_parts(self) -> None:
        """Find the modules and weights that are used, and the class that holds each."""
        self._modules: dict[str, dict[str, None]] = defaultdict(dict)
        self._weights: dict[str, dict[str, None]] = defaultdict(dict)
        for scope in self._top.scopes():
            for item in scope.items:
                path = item.path if isinstance(item, Scope) else str(item.target)
                if isinstance(item, Scope) or item.op == "call_module":
                    used = self._places.within(scope.path, path)
                    self._use(used, whole=not isinstance(item, Scope))
        for path in list(self._places.aliases.values()):
            self._use(path, whole=path not in self._scopes)
        for node in self._graph.graph.nodes:
            if node.op == "get_attr":
                self._use_weight(str(node.target))

    def _use(self, path: str, *, whole: bool) -> None:
        self._places.used.add(path)
        if whole:
            self._places.whole.add(path)
        parent = path.rpartition(".")[0]
        if parent in self._places.chains and path not in self._places.aliases:
            return  # created with the chain
        if path not in self._places.aliases or path not in self._places.classes:
            self._modules[self._places.owner_of(path)].setdefault(path)

    def _use_weight(self, path: str) -> None:
        parent, _, _ = path.rpartition(".")
        module = find_module(self._model, parent)
        if parent not in self._scopes and parent and _is_torch_module_weight(module, path):
            self._use(parent, whole=True)
        else:
            self._weights[self._places.owner_of(path)].setdefault(path)

    def _module_code(self, scope: Scope, path: str) -> Code:
        return self._places.code(scope, self._places.within(scope.path, path))

    def _method_of(self, scope: Scope) -> str:
        return self._methods.get(id(scope), "forward")

    def generate(self) -> Generated:
        """Return the classes and weights."""
        # Submodules first: a module's methods must be named before code that calls them is written.
        paths = self._in_order()
        self._instances = {path: self._instance(path) for path in paths}
        groups: dict[object, list[str]] = {}
        kinds: dict[str, object] = {}
        for path in paths:
            key = (self._instances[path].own_shape(), self._member_shape(path, kinds)) if path else "model"
            kinds[path] = hash(key)
            groups.setdefault(key, []).append(path)
        taken = {self._name, *self._imports.taken}
        known: list[tuple[str, Instance]] = []
        classes = []
        for group in groups.values():
            instances = [self._instances[path] for path in sorted(group, key=_natural)]
            for instance in instances:
                instance.members = self._members(instance.path)
            first = instances[0]
            name = class_name(first, known, taken) if first.path else self._name
            taken.add(name)
            known.append((name, first))
            definition = define_class(name, instances, [self._settings(i.path) for i in instances])
            classes.append(definition)
            for instance in instances:
                self._definitions[instance.path] = definition
        weights, ties = self._state()
        lengths = {self._definitions[path].name: self._lengths(path) for path in paths}
        return Generated(classes, self._imports, weights, ties, lengths)

    def _in_order(self) -> list[str]:
        """Return the paths of the classes, each after the classes that it instantiates."""
        parts: dict[str, set[str]] = defaultdict(set)
        for path in self._scopes:
            if path:
                parts[self._places.owner_of(path)].add(path)
        for alias, path in self._places.aliases.items():
            if path in self._scopes:
                parts[self._places.owner_of(alias)].add(path)
        found: dict[str, None] = {}

        def visit(path: str) -> None:
            for part in sorted(parts[path], key=_natural):
                if part not in found:
                    visit(part)
            found.setdefault(path)

        visit("")
        return list(found)

    def _instance(self, path: str) -> Instance:
        scopes = self._scopes[path]
        methods: dict[str, Body] = {}
        for scope in scopes:
            returned, result = list(scope.outputs), None
            if not path:
                output = next(node for node in self._graph.graph.nodes if node.op == "output")
                returned, result = list(output.all_input_nodes), output.args[0]
                scope.inputs = [node for node in self._graph.graph.nodes if node.op == "placeholder"]
            body = write_body(scope, returned, result, self._context)
            for name, known in methods.items():
                if known == body:
                    self._methods[id(scope)] = name
                    break
            else:
                name = "forward" if not methods else f"forward{len(methods) + 1}"
                methods[name] = body
                self._methods[id(scope)] = name
        return Instance(path, scopes[0].call.type_name, methods)

    def _members(self, path: str) -> list[Member]:
        return self._made_with(path, lambda inner: self._definitions[inner].instance(inner))

    def _made_with(self, path: str, instance: Callable[[str], Code]) -> list[Member]:
        writer = MemberWriter(self._places, self._imports, instance)
        weights = [*self._weights[path]]
        inlined = {weight for weight in weights if self._is_inlined(weight)}
        return writer.members(path, [*self._modules[path]], weights, inlined)

    def _member_shape(self, path: str, kinds: dict[str, object]) -> object:
        """Return a key that two modules' members must share for the modules to be of one class."""
        members = self._made_with(path, lambda inner: (f"<{kinds[inner]}>",))
        return tuple((member.name, shape(member.code)) for member in members)

    def _is_inlined(self, path: str) -> bool:
        tensor = find_tensor(self._graph, self._model, path)
        return (
            id(tensor) not in self._own_weights and tensor.numel() <= INLINED_ELEMENTS and not tensor.is_meta
        )

    def _state(self) -> tuple[dict[str, torch.Tensor], list[tuple[str, str]]]:
        """Return the weights by their names in the file, and the pairs of tied parts."""
        places = self._places
        weights: dict[str, torch.Tensor] = {}
        codes: dict[str, str] = {}  # the code that accesses a weight from the model
        ties: list[tuple[str, str]] = []
        tied: list[str] = []  # the prefixes of weight names in tied parts
        for alias, path in sorted(places.aliases.items()):
            module = find_module(self._model, path)
            if module is not None and next(iter(module.state_dict()), None) is not None:
                ties.append((places.route_code("", alias), places.route_code("", path)))
                tied.append(f"{places.key(alias)}.")
        for path in sorted(places.whole, key=_natural):
            module = find_used(self._graph, self._model, places.aliases.get(path, path))
            assert module is not None
            for name, tensor in module.state_dict(keep_vars=True).items():
                weights[f"{places.key(path)}.{name}"] = tensor
                codes[f"{places.key(path)}.{name}"] = places.route_code("", path) + _attribute(name, path)
        for paths in self._weights.values():
            for path in paths:
                if not self._is_inlined(path):
                    weights[places.key(path)] = find_tensor(self._graph, self._model, path)
                    codes[places.key(path)] = places.route_code("", path)
        for alias, path in places.aliases.items():
            source, made = f"{places.key(path)}.", f"{places.key(alias)}."
            shared = {
                made + key.removeprefix(source): weights[key] for key in weights if key.startswith(source)
            }
            weights |= shared
        first: dict[int, str] = {}
        for key, tensor in weights.items():
            if id(tensor) not in first:
                first[id(tensor)] = key
            elif key in codes and not key.startswith(tuple(tied)) and isinstance(tensor, nn.Parameter):
                ties.append((codes[key], codes[first[id(tensor)]]))
        return weights, ties

    def _settings(self, path: str) -> dict[str, str]:
        """Return a module's public numeric attributes as code, by name."""
        module = find_module(self._model, path)
        return {
            name: number(value)
            for name, value in (vars(module).items() if module is not None else ())
            if type(value) in (int, float) and not name.startswith("_")
        }

    def _lengths(self, path: str) -> dict[str, int]:
        module = find_module(self._model, path)
        if module is None:
            return {}
        return {
            name: len(part)
            for name, part in module.named_children()
            if isinstance(part, (nn.ModuleList, nn.Sequential))
        }


def _is_torch_module_weight(module: nn.Module | None, path: str) -> bool:
    """Whether a weight belongs to one of torch's own modules, which can be recreated by its constructor."""
    if module is None or type(module) is nn.Module:  # a plain holder, filled by others
        return False
    if not type(module).__module__.startswith("torch.nn.modules"):
        return False
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)):
        return False
    return path.rpartition(".")[2] in {*module._parameters, *module._buffers}


def _natural(path: str) -> list[tuple[int, object]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in path.split(".")]


def _attribute(key: str, path: str) -> str:
    """Return the code that accesses a weight from one of torch's own modules, at a path."""
    return "".join(
        f"[{part}]" if part.isascii() and part.isdecimal() else f".{own_name(part, path)}"
        for part in key.split(".")
    )

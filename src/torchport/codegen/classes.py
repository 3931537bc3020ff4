"""The classes of a generated file: modules with the same code share a class; differences become arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torchport.codegen.body import Body, Statement
from torchport.codegen.code import (
    Code,
    Literal,
    call,
    collapse_repeats,
    fill,
    free_name,
    identifier,
    is_name,
    literals,
    shape,
)
from torchport.codegen.members import Member


@dataclass(slots=True)
class Instance:
    """A module of the model that a class is generated for.

    Args:
        path: its path.
        type_name: the name of its class in the model.
        members: its members; set once the classes of its parts are known.
        methods: its methods' bodies, by name.
    """

    path: str
    type_name: str
    methods: dict[str, Body]
    members: list[Member] = field(default_factory=list)

    def literals(self) -> Iterator[tuple[str, Literal]]:
        """Yield the literals of its code, each with the name of the member that contains it."""
        for member in self.members:
            for literal in literals(member.code):
                yield member.name, literal
        for body in self.methods.values():
            for statement in body.statements:
                for literal in literals(statement.code):
                    yield "", literal

    def own_shape(self) -> tuple[object, ...]:
        """Return a key that two modules must share to be of one class, apart from their members."""
        methods = tuple(
            (
                name,
                body.parameters,
                tuple((s.head, shape(s.code), s.depth, s.tail, s.comment) for s in body.statements),
            )
            for name, body in self.methods.items()
        )
        return self.type_name, methods


@dataclass(slots=True)
class ClassDefinition:
    """A generated class.

    Args:
        name: its name.
        parameters: its constructor's parameters.
        kept: the parameters that `forward` needs, which become attributes.
        members: its members, with parameters substituted for literals.
        methods: its methods, with attributes substituted for literals.
        values: the constructor arguments of each of its instances, by path.
    """

    name: str
    parameters: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    methods: dict[str, Body] = field(default_factory=dict)
    values: dict[str, list[Literal]] = field(default_factory=dict)

    def instance(self, path: str) -> Code:
        """Return the constructor call for the instance at a path."""
        return call((self.name,), [(literal,) for literal in self.values[path]])


def define_class(
    name: str, instances: list[Instance], settings: Sequence[Mapping[str, str]]
) -> ClassDefinition:
    """Define one class for modules that have the same code.

    Literals that differ between them become parameters; literals with the same values in every instance share
    one.

    Args:
        name: the name of the class.
        instances: the modules.
        settings: each module's numeric attributes in the model, whose names are preferred for parameters.
    """
    columns = [list(instance.literals()) for instance in instances]
    rows = list(zip(*columns, strict=True))
    definition = ClassDefinition(name)
    names: dict[tuple[str, ...], str] = {}
    texts: list[str] = []
    in_members = sum(1 for member in instances[0].members for _ in literals(member.code))
    for position, row in enumerate(rows):
        values = tuple(literal.text for _, literal in row)
        if len(set(values)) == 1:
            texts.append(values[0])
            continue
        member, literal = row[0]
        if values not in names:
            kept = _setting(values, settings)
            names[values] = _parameter_name(member, kept or literal.hint, set(names.values()))
            definition.parameters.append(names[values])
            for instance, (_, own) in zip(instances, row, strict=True):
                definition.values.setdefault(instance.path, []).append(Literal(own.text, names[values]))
        texts.append(names[values])
        if position >= in_members:
            texts[-1] = f"self.{names[values]}"
            if names[values] not in definition.kept:
                definition.kept.append(names[values])
    for instance in instances:
        definition.values.setdefault(instance.path, [])
    _fill(definition, instances[0], texts)
    return definition


def _fill(definition: ClassDefinition, example: Instance, texts: list[str]) -> None:
    values = iter(texts)
    definition.members = [
        Member(member.name, collapse_repeats(fill(member.code, values)), member.statement)
        for member in example.members
    ]
    for name, body in example.methods.items():
        statements = tuple(
            Statement(s.head, fill(s.code, values), s.depth, s.tail, s.comment) for s in body.statements
        )
        definition.methods[name] = Body(body.parameters, statements)


def _setting(values: tuple[str, ...], settings: Sequence[Mapping[str, str]]) -> str:
    """Return the attribute under which every module keeps its value; empty if there is none."""
    for name in settings[0]:
        if all(own.get(name) == value for own, value in zip(settings, values, strict=True)):
            return name
    return ""


def _parameter_name(member: str, hint: str, taken: set[str]) -> str:
    hint = identifier(hint or "size")
    for name in (hint, f"{member}_{hint}" if member else f"{hint}_value"):
        if name not in taken:
            return name
    return free_name(hint, taken)


def class_name(instance: Instance, known: list[tuple[str, Instance]], taken: set[str]) -> str:
    """Return a free name for a class: the model's own, or one derived from the module's path.

    Args:
        instance: one of its modules.
        known: the classes that already have a name, each with one of its modules.
        taken: names that are not free.
    """
    base = instance.type_name
    if base in ("Sequential", "ModuleList", "ModuleDict", "Module", "CallableModule") or not is_name(base):
        parts = [part for part in re.split(r"[._]", instance.path) if part and not part.isdigit()]
        base = _camel([identifier(part) for part in parts[-2:]]) or "Block"
        base = base if is_name(base) else f"{base}Block"
    if base not in taken:
        return base
    for name, other in known:
        if name == base:
            more = [m.name for m in instance.members if m.name not in {o.name for o in other.members}]
            less = [o.name for o in other.members if o.name not in {m.name for m in instance.members}]
            told = f"{base}With{_camel(more[0].split('_'))}" if more else ""
            told = told or (f"{base}Without{_camel(less[0].split('_'))}" if less else "")
            if told and told not in taken:
                return told
    return free_name(base, taken)


def _camel(parts: list[str]) -> str:
    return "".join(part[:1].upper() + part[1:] for part in parts if part)

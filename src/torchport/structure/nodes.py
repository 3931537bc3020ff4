"""The nodes of a `Structure`: everything in a value except its tensors."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import torch

from torchport.errors import StructureError


class Assembly:
    """The tensors and objects from which a value is being rebuilt.

    Args:
        leaves: the structure's own tensors.
        inputs: the input tensors of the call that returned the value.
        input_objects: the mutable input objects of that call, in traversal order.
    """

    __slots__ = ("input_objects", "inputs", "leaves", "objects")

    def __init__(
        self,
        leaves: Sequence[object],
        inputs: Sequence[object] = (),
        input_objects: Sequence[object] = (),
    ) -> None:
        self.leaves = leaves
        self.inputs = inputs
        self.input_objects = input_objects
        self.objects: dict[int, object] = {}


class Node:
    """One node of a structure."""

    __slots__ = ()

    def build(self, assembly: Assembly) -> object:
        """Return the value that this node represents."""
        raise NotImplementedError

    def fill(self, assembly: Assembly, target: object) -> None:
        """Replace the contents of `target`, one of the caller's objects, with what this node describes."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Leaf(Node):
    """One of the structure's own tensors."""

    index: int

    def build(self, assembly: Assembly) -> object:
        try:
            return assembly.leaves[self.index]
        except IndexError:
            raise _missing(f"tensor {self.index}") from None


@dataclass(frozen=True, slots=True)
class InputLeaf(Node):
    """An input tensor of the call, returned as is."""

    index: int

    def build(self, assembly: Assembly) -> object:
        try:
            return assembly.inputs[self.index]
        except IndexError:
            raise _missing(f"input {self.index}") from None


@dataclass(frozen=True, slots=True)
class InputObject(Node):
    """A mutable input object of the call, returned as is."""

    index: int

    def build(self, assembly: Assembly) -> object:
        try:
            return assembly.input_objects[self.index]
        except IndexError:
            raise _missing(f"input object {self.index}") from None


@dataclass(frozen=True, slots=True)
class Known(Node):
    """A reference to an object visited earlier: shared, or part of a cycle."""

    slot: int

    def build(self, assembly: Assembly) -> object:
        try:
            return assembly.objects[self.slot]
        except KeyError:
            raise _missing(f"object {self.slot}") from None


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Node):
    """A value that is kept as is instead of being flattened."""

    value: object

    def build(self, assembly: Assembly) -> object:
        return self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and same_value(self.value, other.value)

    def __hash__(self) -> int:
        return hash(type(self.value))


@dataclass(frozen=True, slots=True)
class Tuple(Node):
    """A plain tuple."""

    items: tuple[Node, ...]

    def build(self, assembly: Assembly) -> object:
        return tuple([item.build(assembly) for item in self.items])


@dataclass(frozen=True, slots=True)
class List(Node):
    """A plain list."""

    slot: int
    items: tuple[Node, ...]

    def build(self, assembly: Assembly) -> object:
        made: list[object] = []
        assembly.objects[self.slot] = made
        made.extend([item.build(assembly) for item in self.items])
        return made

    def fill(self, assembly: Assembly, target: object) -> None:
        if not isinstance(target, list):
            raise _cannot_fill(target, "list")
        target[:] = [item.build(assembly) for item in self.items]


@dataclass(frozen=True, slots=True)
class Dict(Node):
    """A plain dict; its keys contain no tensors."""

    slot: int
    keys: tuple[object, ...]
    items: tuple[Node, ...]

    def build(self, assembly: Assembly) -> object:
        made: dict[object, object] = {}
        if self.slot >= 0:  # a state dict is not an object of its own, and has no slot
            assembly.objects[self.slot] = made
        for key, item in zip(self.keys, self.items, strict=True):
            made[key] = item.build(assembly)
        return made

    def fill(self, assembly: Assembly, target: object) -> None:
        if not isinstance(target, dict):
            raise _cannot_fill(target, "dict")
        content = {key: item.build(assembly) for key, item in zip(self.keys, self.items, strict=True)}
        target.clear()
        target.update(content)


@dataclass(frozen=True, slots=True)
class Object(Node):
    """An instance of any other class, represented by its copy protocol (`__reduce_ex__`).

    Args:
        slot: the object's number.
        make: the callable that constructs an empty instance.
        arguments: the arguments of `make`.
        state: the attributes, or the argument of the class's `__setstate__`.
        items: the items to append, if the object is list-like.
        keys, values: the entries to store, if the object is dict-like.
        set_state: the sixth item of the protocol, a callable that sets the state; None to set it as
            `copy.copy` does.
    """

    slot: int
    make: Callable[..., object]
    arguments: tuple[Node, ...]
    state: Node | None
    items: tuple[Node, ...]
    keys: tuple[object, ...]
    values: tuple[Node, ...]
    set_state: Callable[[object, object], object] | None = None

    def build(self, assembly: Assembly) -> object:
        made = self.make(*[argument.build(assembly) for argument in self.arguments])
        assembly.objects[self.slot] = made
        self._give_content(assembly, made)
        return made

    def _give_content(self, assembly: Assembly, made: object) -> None:
        if self.state is not None:
            state = self.state.build(assembly)
            if self.set_state is not None:
                self.set_state(made, state)
            else:
                give_state(made, state)
        for item in self.items:
            made.append(item.build(assembly))  # type: ignore[attr-defined]  # promised by the protocol
        for key, value in zip(self.keys, self.values, strict=True):
            made[key] = value.build(assembly)  # type: ignore[index]  # promised by the protocol

    def fill(self, assembly: Assembly, target: object) -> None:
        if self.items or isinstance(target, list) or self.keys or isinstance(target, dict):
            target.clear()  # type: ignore[attr-defined]  # list-like and dict-like objects have it
        attributes = getattr(target, "__dict__", None)
        if isinstance(attributes, dict) and self.set_state is None and not _has_own_set_state(target):
            attributes.clear()
        self._give_content(assembly, target)

    @property
    def kind(self) -> str:
        """The class's name, for messages."""
        if self.make is copyreg.__newobj__ and self.arguments:  # type: ignore[attr-defined]  # missing in the stubs
            first = self.arguments[0]
            if isinstance(first, Constant) and isinstance(first.value, type):
                return first.value.__name__
        return getattr(self.make, "__name__", str(self.make))


def _missing(what: str) -> StructureError:
    """Return the error for a structure, possibly read from a file, that refers to something missing."""
    return StructureError(
        f"the structure refers to {what}, which does not exist", remedy="get the file again"
    )


def _cannot_fill(target: object, wanted: str) -> StructureError:
    return StructureError(
        f"the call modifies a {wanted}, but was given a {type(target).__name__}",
        remedy="call it with inputs of the same classes as the example inputs",
    )


def give_state(made: object, state: object) -> None:
    """Set an object's state as `copy.copy` does."""
    if _has_own_set_state(made):
        made.__setstate__(state)  # type: ignore[attr-defined]  # checked above
        return
    slots: object = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if isinstance(state, dict):
        made.__dict__.update(state)
    if isinstance(slots, dict):
        for name, value in slots.items():
            object.__setattr__(made, name, value)


def _has_own_set_state(made: object) -> bool:
    return hasattr(made, "__setstate__")


def same_value(left: object, right: object) -> bool:
    """Whether two tensor-free values are interchangeable; False if this cannot be determined."""
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, (float, complex)):
        return repr(left) == repr(right)  # distinguishes 0.0 from -0.0, and treats NaN as equal to NaN
    if isinstance(left, (int, str, bytes)):
        return left == right
    try:
        equal = left == right
        return bool(equal.all()) if hasattr(equal, "all") else bool(equal)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return False


@dataclass(frozen=True, slots=True)
class Structure:
    """Everything in a value except its tensors.

    Args:
        root: the value's outermost node.
        paths: the path of each tensor in the value, such as `past_key_values.layers[0].keys`.
        changed: the indices of the mutable inputs that the call changed, with their new contents.
    """

    root: Node
    paths: tuple[str, ...] = field(compare=False)
    changed: tuple[tuple[int, Node], ...] = ()

    def rebuild(
        self,
        leaves: Sequence[object],
        inputs: Sequence[object] = (),
        input_objects: Sequence[object] = (),
    ) -> object:
        """Rebuild the value from its tensors.

        Args:
            leaves: the tensors, in the order of `paths`.
            inputs: the input tensors of the call that returned the value, if the structure refers to them.
            input_objects: that call's mutable input objects; the call's changes are applied to them.

        Example:
            >>> flat = structure.flatten({"a": torch.ones(2), "b": 3})
            >>> flat.structure.rebuild([torch.zeros(2)])
            {'a': tensor([0., 0.]), 'b': 3}
        """
        if type(self.root) is Leaf and not self.changed:
            return leaves[self.root.index]  # fast path: most results are a single tensor
        assembly = Assembly(leaves, inputs, input_objects)
        value = self.root.build(assembly)
        for index, content in self.changed:
            content.fill(assembly, input_objects[index])
        return value

    @property
    def has_symbols(self) -> bool:
        """Whether it contains symbolic numbers, known only at call time, such as dynamic sizes."""
        stack: list[object] = [self.root, *[content for _, content in self.changed]]
        while stack:
            part = stack.pop()
            if isinstance(part, Constant):
                part = part.value
            if isinstance(part, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                return True
            if isinstance(part, slice):
                stack += [part.start, part.stop, part.step]
            elif isinstance(part, (tuple, torch.Size)):
                stack += part
            elif isinstance(part, Node):
                stack += [getattr(part, each.name) for each in fields(part)]  # type: ignore[arg-type]  # each is a dataclass
        return False

    def rebuild_with_objects(self, leaves: Sequence[object]) -> tuple[object, list[object]]:
        """Rebuild the value as `rebuild` does; also return its mutable objects, in traversal order."""
        assembly = Assembly(leaves)
        value = self.root.build(assembly)
        return value, [assembly.objects[slot] for slot in sorted(assembly.objects)]

"""Flattens any value into its tensors and a `Structure`."""

from __future__ import annotations

import enum
import functools
import re
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
import torch

from torchport.errors import StructureError
from torchport.structure.nodes import (
    Constant,
    Dict,
    InputLeaf,
    InputObject,
    Known,
    Leaf,
    List,
    Node,
    Object,
    Structure,
    Tuple,
)

# Values that are never flattened: they contain no tensors, or sharing them is intended.
_ATOMIC = (
    type(None), bool, int, float, complex, str, bytes, bytearray, type, range, slice, enum.Enum,
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, types.CodeType,
    types.GeneratorType, functools.partial, property, re.Pattern, weakref.ref, numpy.ndarray, numpy.generic,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Generator,
    torch.nn.Module, torch.SymInt, torch.SymFloat, torch.SymBool,
)  # fmt: skip

_NOTHING: Mapping[int, object] = types.MappingProxyType({})


class Flat(NamedTuple):
    """A flattened value.

    Args:
        leaves: the value's tensors, without duplicates.
        structure: rebuilds the value from its tensors.
        objects: the mutable objects in the value, in traversal order.
    """

    leaves: list[torch.Tensor]
    structure: Structure
    objects: list[object]


def flatten(value: object, *, by_reference: Mapping[int, object] = _NOTHING) -> Flat:
    """Flatten a value into its tensors and its structure.

    A tensor or object that occurs more than once is stored once, so sharing is preserved.

    Args:
        value: any Python value.
        by_reference: objects, by id, to store by reference instead of flattening, each with the object to
            refer to in its place.

    Raises:
        StructureError: a dict has a tensor as a key, or values are nested too deeply for Python.

    Example:
        >>> flat = flatten((torch.ones(2), {"scale": 3}))
        >>> len(flat.leaves), flat.structure.paths
        (1, ('[0]',))
    """
    walk = _Walk(by_reference)
    root = _not_too_deep(walk.visit, value, "")
    return Flat(walk.leaves, Structure(root, tuple(walk.paths)), walk.objects)


def call_arguments(
    args: object, kwargs: Mapping[str, object] | None = None
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the inputs of a call by position and by name; a tensor is the only input.

    Raises:
        StructureError: the inputs by position are neither a tensor nor a sequence, or those by name no dict.

    Example:
        >>> call_arguments([1, 2], {"scale": 3})
        ((1, 2), {'scale': 3})
    """
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, Sequence) or isinstance(args, (str, bytes)):
        raise StructureError(
            f"the inputs are of the class {type(args).__name__}, not a tuple",
            remedy="give a tuple of the inputs by position, such as (x,), and a dict of those by name",
        )
    if not isinstance(kwargs, (Mapping, types.NoneType)) or not all(
        isinstance(name, str) for name in kwargs or {}
    ):
        raise StructureError(
            f"the inputs by name are no dict with strings as keys: {kwargs!r:.60}",
            remedy="give a dict, such as {'x': x}",
        )
    return tuple(args), dict(kwargs or {})


def flatten_call(args: tuple[object, ...], kwargs: dict[str, object]) -> Flat:
    """Flatten the inputs of a call; equivalent to `flatten((args, kwargs))`.

    There is a fast path for tensors and for lists and dicts of tensors: their structure is cached by the
    containers' lengths and keys.
    """
    if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
        return Flat([args[0]], _ONE_TENSOR, [kwargs])
    leaves: list[Any] = []
    objects: list[object] = []
    form: list[object] = [len(args), *kwargs]
    for value in (*args, kwargs, *kwargs.values()):
        if type(value) is torch.Tensor:
            leaves.append(value)
            form.append(torch.Tensor)
        elif value is kwargs:
            objects.append(value)
        elif type(value) is list:
            leaves += value
            objects.append(value)
            form.append(len(value))
        elif type(value) is dict and _NAMES.issuperset(map(type, value)):
            leaves += value.values()
            objects.append(value)
            form.append(tuple(value))
        else:
            return flatten((args, kwargs))
    if not _TENSORS.issuperset(map(type, leaves)) or _has_one_twice(leaves) or _has_one_twice(objects):
        return flatten((args, kwargs))
    return Flat(leaves, _structure_of(tuple(form), args, kwargs), objects)


_NAMES, _TENSORS = frozenset([str]), frozenset([torch.Tensor])
_MOST_STRUCTURES = 256
_structures: dict[tuple[object, ...], Structure] = {}


def _structure_of(form: tuple[object, ...], args: tuple[object, ...], kwargs: dict[str, object]) -> Structure:
    """Return the structure of a call, cached: all calls of the same form share it."""
    found = _structures.get(form)
    if found is None:
        if len(_structures) >= _MOST_STRUCTURES:
            _structures.clear()
        found = _structures[form] = flatten((args, kwargs)).structure
    return found


def _has_one_twice(values: list[object]) -> bool:
    return len(set(map(id, values))) < len(values)


def flatten_result(
    value: object,
    inputs: Sequence[torch.Tensor],
    input_objects: Sequence[object],
    before: Structure,
    *,
    by_reference: Mapping[int, object] = _NOTHING,
) -> Flat:
    """Flatten a call's result, together with the changes that the call made to its mutable inputs.

    Args:
        value: the result.
        inputs: the tensors passed to the call.
        input_objects: the mutable objects passed to the call.
        before: the structure of the inputs before the call.
        by_reference: objects, by id, to store by reference instead of flattening, as in `flatten`.
    """
    walk = _Walk(by_reference)
    for index, tensor in enumerate(inputs):
        walk.seen[id(tensor)] = InputLeaf(index)
    for index, item in enumerate(input_objects):
        walk.seen[id(item)] = InputObject(index)
    root = _not_too_deep(walk.visit, value, "")
    earlier = contents(before.root)
    changed = []
    for index, item in enumerate(input_objects):
        content = walk.visit_content(item, f"input object {index}")
        if not _same_content(earlier[index], content):
            changed.append((index, content))
    # No leaf is reachable only through unchanged objects: they contain input tensors only.
    return Flat(walk.leaves, Structure(root, tuple(walk.paths), tuple(changed)), walk.objects)


def tensors_in(value: object) -> list[tuple[str, torch.Tensor]]:
    """Return every distinct tensor in a value, with the path of its first occurrence.

    Example:
        >>> [path for path, _ in tensors_in({"a": torch.ones(1), "b": [torch.ones(2)]})]
        ['a', 'b[0]']
    """
    flat = flatten(value)
    return list(zip(flat.structure.paths, flat.leaves, strict=True))


def _not_too_deep(visit: Callable[[object, str], Node], value: object, path: str) -> Node:
    try:
        return visit(value, path)
    except RecursionError:
        raise StructureError(
            "a value is nested too deeply to be flattened",
            where=path,
            remedy="pass less deeply nested containers, or raise sys.setrecursionlimit",
        ) from None


class _Walk:
    """One traversal of a value."""

    def __init__(self, by_reference: Mapping[int, object]) -> None:
        self.by_reference = by_reference
        self.leaves: list[torch.Tensor] = []
        self.paths: list[str] = []
        self.objects: list[object] = []
        self.seen: dict[int, Node] = {}
        self.kept: list[object] = []  # keeps temporaries alive, so their ids are not reused during the walk

    def visit(self, value: object, path: str) -> Node:
        """Return the node that represents `value`."""
        known = self.seen.get(id(value))
        if known is not None:
            return known
        if isinstance(value, torch.Tensor):
            leaf = Leaf(len(self.leaves))
            self.leaves.append(value)
            self.paths.append(path or "output")
            self.seen[id(value)] = leaf
            return leaf
        if id(value) in self.by_reference:
            return Constant(self.by_reference[id(value)])
        if isinstance(value, _ATOMIC):
            return Constant(value)
        if type(value) is tuple:
            return Tuple(tuple(self.visit(item, f"{path}[{i}]") for i, item in enumerate(value)))
        return self._visit_object(value, path)

    def visit_content(self, value: object, path: str) -> Node:
        """Return the node that describes a mutable object's contents, even if it was visited before."""
        return _not_too_deep(self._visit_object, value, path)

    def _visit_object(self, value: object, path: str) -> Node:
        if type(value) is list:
            slot = self._slot(value)
            return List(slot, tuple(self.visit(item, f"{path}[{i}]") for i, item in enumerate(value)))
        if type(value) is dict:
            slot = self._slot(value)
            items = tuple(self.visit(item, _attribute(path, key)) for key, item in value.items())
            return Dict(slot, self._keys(value, path), items)
        reduced = _reduce(value)
        if reduced is None:
            return Constant(value)
        return self._visit_reduced(self._slot(value), reduced, path, _field_names(value))

    def _slot(self, value: object) -> int:
        """Assign a slot number to a mutable object."""
        slot = len(self.objects)
        self.objects.append(value)
        self.seen.setdefault(id(value), Known(slot))  # an input that contains itself stays an InputObject
        return slot

    def _visit_reduced(self, slot: int, reduced: _Reduced, path: str, fields: dict[int, str]) -> Node:
        self.kept.append(reduced)
        return Object(
            slot,
            reduced.make,
            tuple(
                self.visit(item, _attribute(path, fields.get(id(item), i)))
                for i, item in enumerate(reduced.arguments)
            ),
            None if reduced.state is None else self._visit_state(reduced.state, path),
            tuple(self.visit(item, f"{path}[{i}]") for i, item in enumerate(reduced.items)),
            self._keys(reduced.entries, path),
            tuple(self.visit(item, _attribute(path, key)) for key, item in reduced.entries.items()),
            reduced.set_state,
        )

    def _visit_state(self, state: object, path: str) -> Node:
        """Return the node of an object's state; a state dict gets no slot, and its keys become attributes."""
        if isinstance(state, tuple) and len(state) == 2:
            return Tuple(tuple(self._visit_state(item, path) for item in state))
        if type(state) is dict:
            items = tuple(self.visit(item, _attribute(path, key)) for key, item in state.items())
            return Dict(-1, self._keys(state, path), items)
        return self.visit(state, path)

    def _keys(self, mapping: Mapping[object, object], path: str) -> tuple[object, ...]:
        for key in mapping:
            if isinstance(key, torch.Tensor):
                raise StructureError("a dict with a tensor as a key cannot be flattened", where=path)
        return tuple(mapping)


@dataclass(frozen=True, slots=True)
class _Reduced:
    """The result of an instance's copy protocol (`__reduce_ex__`)."""

    make: Callable[..., object]
    arguments: tuple[object, ...]
    state: object
    items: list[object]
    entries: dict[object, object]
    set_state: Callable[[object, object], object] | None


def _reduce(value: object) -> _Reduced | None:
    """Return the parts of the copy protocol's result; None for an object that cannot be copied."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001  # a class's own code may raise anything: such an object is shared
        return None
    if isinstance(reduced, str):
        return None
    parts = tuple(reduced) + (None,) * (6 - len(reduced))
    return _Reduced(
        parts[0], tuple(parts[1] or ()), parts[2], list(parts[3] or ()), dict(parts[4] or ()), parts[5]
    )


def _field_names(value: object) -> dict[int, str]:
    """Return the field names of a dataclass or named tuple, keyed by the ids of the fields' values."""
    names: Iterable[str] = getattr(type(value), "_fields", ()) or getattr(
        type(value), "__dataclass_fields__", ()
    )
    return {id(getattr(value, name)): name for name in names if hasattr(value, name)}


def _attribute(path: str, key: object) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]"


def contents(root: Node) -> dict[int, Node]:
    """Return the nodes of mutable objects, keyed by slot number."""
    found: dict[int, Node] = {}
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, (List, Dict, Object)) and node.slot >= 0:
            found[node.slot] = node
        if isinstance(node, (Tuple, List, Dict)):
            stack.extend(node.items)
        elif isinstance(node, Object):
            stack.extend((*node.arguments, *node.items, *node.values))
            if node.state is not None:
                stack.append(node.state)
    return found


def _same_content(before: Node | None, after: Node | None) -> bool:
    """Whether an input object's contents are the same after the call as before it."""
    if isinstance(before, Leaf) and isinstance(after, InputLeaf):
        return before.index == after.index
    if isinstance(before, (List, Dict, Object)) and isinstance(after, InputObject):
        return before.slot == after.index
    if isinstance(before, Known) and isinstance(after, InputObject):
        return before.slot == after.index
    if isinstance(after, (Leaf, Known)):
        return False  # a new tensor or object: its index refers to the result, not to the inputs
    if type(before) is not type(after):
        return False
    if isinstance(before, (Tuple, List)) and isinstance(after, (Tuple, List)):
        return _all_same(before.items, after.items)
    if isinstance(before, Dict) and isinstance(after, Dict):
        return before.keys == after.keys and _all_same(before.items, after.items)
    if isinstance(before, Object) and isinstance(after, Object):
        return (
            before.make is after.make
            and before.keys == after.keys
            and _all_same(before.arguments, after.arguments)
            and _all_same(before.items, after.items)
            and _all_same(before.values, after.values)
            and (before.state is after.state or _same_content(before.state, after.state))
        )
    return before == after


def _all_same(before: Sequence[Node], after: Sequence[Node]) -> bool:
    return len(before) == len(after) and all(map(_same_content, before, after))


_ONE_TENSOR = flatten(((torch.empty(0, device="meta"),), {})).structure

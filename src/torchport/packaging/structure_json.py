"""Converts a `Structure` to JSON and back: what a value is made of, as data.

Classes are stored by name. A name in a file alone instantiates nothing: the reader instantiates only the
classes that it is given, `OrderedDict`, and transformers' model outputs and dynamic caches, which only hold
data.
"""

from __future__ import annotations

import collections
import copyreg
import importlib
import math
import re
from collections.abc import Iterable, Mapping

import torch

from torchport.errors import PackageError, TargetError
from torchport.structure import Structure
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
    Tuple,
)
from torchport.targets.graph_arguments import permitted_dtype

_NEW = getattr(copyreg, "__newobj__")  # noqa: B009  # a dunder name, which a class would mangle
_INDEXED: dict[str, type[Leaf] | type[InputLeaf] | type[InputObject] | type[Known]] = {
    "leaf": Leaf,
    "input": InputLeaf,
    "input_object": InputObject,
    "known": Known,
}


def encode_structure(structure: Structure) -> dict[str, object]:
    """Return a structure as JSON.

    Raises:
        PackageError: it contains a value that is not data, or an object built by code; names it.
    """
    return {
        "root": _encode(structure.root),
        "paths": list(structure.paths),
        "changed": [[index, _encode(node)] for index, node in structure.changed],
    }


def _encode(node: Node) -> object:
    if isinstance(node, (Leaf, InputLeaf, InputObject)):
        kind = next(kind for kind, made in _INDEXED.items() if type(node) is made)
        return {kind: node.index}
    if isinstance(node, Known):
        return {"known": node.slot}
    if isinstance(node, Constant):
        return {"value": _encode_value(node.value)}
    if isinstance(node, Tuple):
        return {"tuple": [_encode(item) for item in node.items]}
    if isinstance(node, List):
        return {"list": [_encode(item) for item in node.items], "slot": node.slot}
    if isinstance(node, Dict):
        keys = [_encode_value(key) for key in node.keys]
        return {"dict": [_encode(item) for item in node.items], "keys": keys, "slot": node.slot}
    if isinstance(node, Object):
        return _encode_object(node)
    raise PackageError(f"a {type(node).__name__} cannot be stored as data")


def _encode_object(node: Object) -> object:
    made_new = node.make is _NEW
    first = node.arguments[0] if made_new and node.arguments else None
    kind = first.value if isinstance(first, Constant) else node.make
    if not isinstance(kind, type) or node.set_state is not None:
        raise PackageError(
            f"an object of class {node.kind} is built by code, but a package can contain only data",
            remedy="have the model take and return tensors, containers, dataclasses or model outputs",
        )
    return {
        "object": class_name(kind),
        "new": made_new,
        "slot": node.slot,
        "arguments": [_encode(item) for item in node.arguments[1 if made_new else 0 :]],
        "state": None if node.state is None else _encode(node.state),
        "items": [_encode(item) for item in node.items],
        "keys": [_encode_value(key) for key in node.keys],
        "values": [_encode(item) for item in node.values],
    }


def class_name(kind: type) -> str:
    """Return the name by which a file refers to a class."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _encode_value(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, str) and not _is_text(value):
        raise PackageError(f"the string {value!r:.80} has a lone surrogate, which no file can hold")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is complex:
        return {"complex": [str(value.real), str(value.imag)]}
    if type(value) is tuple:
        return {"tuple": [_encode_value(item) for item in value]}
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, type):
        return {"class": class_name(value)}
    raise PackageError(
        f"a value of class {type(value).__name__} cannot be stored as data",
        remedy="have the model take and return tensors, plain values and containers of them",
    )


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def decode_structure(data: object, classes: Iterable[type] = ()) -> Structure:
    """Return a structure from its JSON.

    Args:
        data: what `encode_structure` returned.
        classes: classes that may be instantiated.

    Raises:
        PackageError: the data is malformed, or names a class that is not permitted.
    """
    fields = _object_of(data, "a structure")
    paths = tuple(str(path) for path in _list_of(fields.get("paths")))
    reader = _Reader(classes, len(paths))
    changed = [_list_of(pair) for pair in _list_of(fields.get("changed"))]
    if any(len(pair) != 2 for pair in changed):
        raise PackageError("a structure has a changed input without an index or contents")
    return Structure(
        reader.node(fields.get("root")), paths, tuple((_index(i), reader.node(node)) for i, node in changed)
    )


def _object_of(data: object, what: str) -> Mapping[str, object]:
    if not isinstance(data, Mapping):
        raise PackageError(f"{what} is malformed: {str(data)[:80]!r}")
    return data


def _list_of(data: object) -> list[object]:
    if not isinstance(data, list):
        raise PackageError(f"a structure has {str(data)[:80]!r} instead of a list")
    return data


def _index(data: object, below: int | None = None) -> int:
    if type(data) is not int or data < 0 or (below is not None and data >= below):
        raise PackageError(f"a structure refers to {str(data)[:80]!r}, which it does not contain")
    return data


class _Reader:
    """Decodes the nodes of a structure.

    Args:
        classes: classes that may be instantiated.
        leaves: how many tensors the structure has.
    """

    def __init__(self, classes: Iterable[type], leaves: int) -> None:
        self._classes = {class_name(kind): kind for kind in (*classes, collections.OrderedDict)}
        self._leaves = leaves

    def node(self, data: object) -> Node:
        """Return a node."""
        fields = _object_of(data, "a part of a structure")
        for kind, made in _INDEXED.items():
            if kind in fields:
                return made(_index(fields[kind], self._leaves if kind == "leaf" else None))
        if "value" in fields:
            return Constant(self.value(fields["value"]))
        if "tuple" in fields:
            return Tuple(self._nodes(fields["tuple"]))
        if "list" in fields:
            return List(_index(fields.get("slot")), self._nodes(fields["list"]))
        if "dict" in fields:
            return self._dict(fields)
        return self._object(fields)

    def _nodes(self, data: object) -> tuple[Node, ...]:
        return tuple(self.node(item) for item in _list_of(data))

    def _keys(self, data: object, values: tuple[Node, ...]) -> tuple[object, ...]:
        keys = tuple(self.value(key) for key in _list_of(data))
        if len(keys) != len(values):
            raise PackageError("a structure does not have as many keys as values")
        return keys

    def _dict(self, fields: Mapping[str, object]) -> Dict:
        items = self._nodes(fields["dict"])
        slot = fields.get("slot")  # -1 for an object's attributes
        return Dict(-1 if slot == -1 else _index(slot), self._keys(fields.get("keys"), items), items)

    def _object(self, fields: Mapping[str, object]) -> Object:
        kind = self._class(fields.get("object"))
        arguments = self._nodes(fields.get("arguments"))
        values = self._nodes(fields.get("values"))
        made_new = fields.get("new") is True
        if not made_new and kind.__module__ == _CACHES:
            raise PackageError(f"an object of class {kind.__name__} would be made by calling the class")
        state = fields.get("state")
        return Object(
            _index(fields.get("slot")),
            _NEW if made_new else kind,
            (Constant(kind), *arguments) if made_new else arguments,
            None if state is None else self._state(state, kind),
            self._nodes(fields.get("items")),
            self._keys(fields.get("keys"), values),
            values,
        )

    def _state(self, data: object, kind: type) -> Node:
        """Return an object's state; refuses state that would set special (dunder) attributes."""
        state = self.node(data)
        if not hasattr(kind, "__setstate__"):
            parts = state.items if isinstance(state, Tuple) and len(state.items) == 2 else (state,)
            for part in parts:
                names = part.keys if isinstance(part, Dict) else ()
                if not (isinstance(part, Dict) or part == Constant(None)) or not all(map(_is_plain, names)):
                    raise PackageError(
                        f"an object of class {kind.__name__} has names that cannot be attributes"
                    )
        return state

    def value(self, data: object) -> object:
        """Return a plain value."""
        if data is None or isinstance(data, (bool, int, float, str)):
            return data
        fields = _object_of(data, "a value")
        [(kind, value)] = fields.items() if len(fields) == 1 else [("", None)]
        try:
            return self._made_value(kind, value)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # from torch's constructors
            raise PackageError(f"a value is malformed: {str(data)[:80]!r}") from error

    def _made_value(self, kind: str, value: object) -> object:
        if kind == "tuple":
            return tuple(self.value(item) for item in _list_of(value))
        if kind == "complex":
            real, imaginary = _list_of(value)
            return complex(float(str(real)), float(str(imaginary)))
        if kind == "class":
            return self._class(value)
        if kind == "dtype":
            return dtype_of(value)
        if kind == "float" and isinstance(value, str):
            return float(value)
        if kind == "size":
            return torch.Size([_index(size) for size in _list_of(value)])
        if kind == "device" and isinstance(value, str):
            return torch.device(value)
        raise ValueError(kind)

    def _class(self, name: object) -> type:
        found = (self._classes.get(name) or _library_class(name)) if isinstance(name, str) else None
        if found is None:
            raise PackageError(
                f"it contains an object of the class {str(name)[:200].replace(':', '.')}, "
                "which is not known here",
                remedy="pass the class: torchport.load(path, classes=[...])",
            )
        return found


def _is_plain(name: object) -> bool:
    """Whether a name can be a data attribute: an identifier, but not a dunder name."""
    return isinstance(name, str) and name.isidentifier() and not (name[:2] == name[-2:] == "__")


def dtype_of(name: object) -> torch.dtype:
    """Return the dtype of a given name.

    Raises:
        PackageError: no dtype that a file may use has this name.
    """
    try:
        return permitted_dtype(name)
    except TargetError as error:
        raise PackageError(error.what) from error


# Where transformers defines its model outputs. A file cannot cause any other of its modules to be imported.
_OUTPUT_MODULES = re.compile(
    r"transformers\.(modeling_outputs|utils\.generic|generation\.utils|"
    r"models\.[a-z0-9_]+\.(modeling|modular)_[a-z0-9_]+)"
)


# Where it defines its caches, and the classes that merely hold the keys and values given to them.
_CACHES = "transformers.cache_utils"
_CACHE_CLASSES = ("DynamicCache", "EncoderDecoderCache", "DynamicLayer", "DynamicSlidingWindowLayer")


def _library_class(name: str) -> type | None:
    """Return transformers' model output class (a dataclass of tensors) or cache of that name; else None."""
    module, _, qualified = name.partition(":")
    is_cache = module == _CACHES and qualified in _CACHE_CLASSES
    if not is_cache and (not _OUTPUT_MODULES.fullmatch(module) or not qualified.isidentifier()):
        return None
    try:
        base = importlib.import_module("transformers.utils.generic").ModelOutput
        found = getattr(importlib.import_module(module), qualified, None)
    except (ImportError, RuntimeError):
        return None
    return found if isinstance(found, type) and (is_cache or issubclass(found, base)) else None

"""A `Structure` as JSON, and back: what a value is made of, as data.

Classes stand by their names. A name in a file makes nothing: the reader makes instances of the classes
that it is given, of `OrderedDict`, and of transformers' model outputs, which hold data alone.
"""

from __future__ import annotations

import collections
import copyreg
import importlib
import math
import sys
from collections.abc import Iterable, Mapping

import torch

from torchport.errors import PackageError
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

_NEW = getattr(copyreg, "__newobj__")  # noqa: B009  # a name that a class would mangle
_INDEXED: dict[str, type[Leaf] | type[InputLeaf] | type[InputObject] | type[Known]] = {
    "leaf": Leaf,
    "input": InputLeaf,
    "input_object": InputObject,
    "known": Known,
}


def encode_structure(structure: Structure) -> dict[str, object]:
    """Return a structure as JSON.

    Raises:
        PackageError: it holds a value that is no data, or an object made by code; names it.
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
    assert isinstance(node, Object)
    return _encode_object(node)


def _encode_object(node: Object) -> object:
    made_new = node.make is _NEW
    first = node.arguments[0] if made_new and node.arguments else None
    kind = first.value if isinstance(first, Constant) else node.make
    if not isinstance(kind, type) or node.set_state is not None:
        raise PackageError(
            f"an object of the class {node.kind} is made by code, and a package holds data only",
            remedy="let the model take and return tensors, containers, dataclasses or model outputs",
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
    """Return the name of a class in a file."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _encode_value(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
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
        f"a value of the class {type(value).__name__} cannot be written down as data",
        remedy="let the model take and return tensors, plain values and containers of them",
    )


def decode_structure(data: Mapping[str, object], classes: Iterable[type] = ()) -> Structure:
    """Return a structure from its JSON.

    Args:
        data: what `encode_structure` returned.
        classes: classes of which instances may be made.

    Raises:
        PackageError: it names a class that is not given.
    """
    reader = _Reader(classes)
    paths, changed = data["paths"], data["changed"]
    assert isinstance(paths, list)
    assert isinstance(changed, list)
    return Structure(
        reader.node(data["root"]),
        tuple(str(path) for path in paths),
        tuple((int(index), reader.node(node)) for index, node in changed),
    )


class _Reader:
    """Reads the parts of a structure.

    Args:
        classes: classes of which instances may be made.
    """

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes = {class_name(kind): kind for kind in (*classes, collections.OrderedDict)}

    def node(self, data: object) -> Node:
        """Return a part."""
        assert isinstance(data, dict)
        for kind, made in _INDEXED.items():
            if kind in data:
                return made(int(data[kind]))
        if "value" in data:
            return Constant(self.value(data["value"]))
        if "tuple" in data:
            return Tuple(self._nodes(data["tuple"]))
        if "list" in data:
            return List(int(data["slot"]), self._nodes(data["list"]))
        if "dict" in data:
            keys = tuple(self.value(key) for key in data["keys"])
            return Dict(int(data["slot"]), keys, self._nodes(data["dict"]))
        return self._object(data)

    def _nodes(self, data: Iterable[object]) -> tuple[Node, ...]:
        return tuple(self.node(item) for item in data)

    def _object(self, data: Mapping[str, object]) -> Object:
        kind = self._class(str(data["object"]))
        arguments = self._nodes(data["arguments"])  # type: ignore[arg-type]
        return Object(
            int(data["slot"]),  # type: ignore[call-overload]
            _NEW if data["new"] else kind,
            (Constant(kind), *arguments) if data["new"] else arguments,
            None if data["state"] is None else self.node(data["state"]),
            self._nodes(data["items"]),  # type: ignore[arg-type]
            tuple(self.value(key) for key in data["keys"]),  # type: ignore[attr-defined]
            self._nodes(data["values"]),  # type: ignore[arg-type]
        )

    def value(self, data: object) -> object:
        """Return a plain value."""
        if not isinstance(data, dict):
            return data
        [(kind, value)] = data.items()
        if kind == "tuple":
            return tuple(self.value(item) for item in value)
        if kind == "complex":
            return complex(float(value[0]), float(value[1]))
        if kind == "class":
            return self._class(value)
        if kind == "dtype":
            return dtype_of(value)
        makers = {"float": float, "size": torch.Size, "device": torch.device}
        return makers[kind](value)

    def _class(self, name: str) -> type:
        found = self._classes.get(name) or _model_output(name)
        if found is None:
            raise PackageError(
                f"it holds an object of the class {name.replace(':', '.')}, which is not known here",
                remedy="give the class: torchport.load(path, classes=[...])",
            )
        return found


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of that name.

    Raises:
        PackageError: there is none.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise PackageError(f"{name!r} is no dtype")
    return found


def _model_output(name: str) -> type | None:
    """Return one of transformers' model outputs, which are dataclasses of tensors; else None."""
    module, _, qualified = name.partition(":")
    if module.split(".")[0] != "transformers" or "." in qualified:
        return None
    try:
        base = importlib.import_module("transformers.utils.generic").ModelOutput
        importlib.import_module(module)
    except (ImportError, RuntimeError):
        return None
    found = getattr(sys.modules[module], qualified, None)
    return found if isinstance(found, type) and issubclass(found, base) else None

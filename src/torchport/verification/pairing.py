"""Walks two results side by side: compares paired tensors and plain values, and reports what has no pair."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import numpy
import torch

from torchport.records import TensorComparison
from torchport.structure import flatten
from torchport.structure.flatten import contents
from torchport.structure.nodes import Constant, Dict, Known, Leaf, List, Node, Object, Tuple, same_value
from torchport.verification.tensors import compare_tensors, unlike
from torchport.verification.tolerance import Tolerance, tolerance_for

# Values that can be compared between runs. Any other constant, such as a lock, a function or a
# module, is a separate object in each run: only its type can be compared.
_PLAIN = (
    bool, int, float, complex, str, bytes, type(None), enum.Enum, type, range, slice,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, numpy.ndarray, numpy.generic,
)  # fmt: skip


def compare_structures(
    actual: object, expected: object, tolerance: Tolerance | None
) -> list[TensorComparison]:
    """Return a row for each tensor and float of two results, and one for each mismatch of other values.

    A tensor that occurs twice in one result is compared at both places if the other result has different
    tensors there.
    """
    pairing = _Pairing(actual, expected, tolerance)
    pairing.visit(pairing.actual.structure.root, pairing.expected.structure.root, "")
    return pairing.rows


class _Pairing:
    """One walk over two results."""

    def __init__(self, actual: object, expected: object, tolerance: Tolerance | None) -> None:
        self.actual = flatten(actual)
        self.expected = flatten(expected)
        self.tolerance = tolerance
        self.rows: list[TensorComparison] = []
        self._actual_objects = contents(self.actual.structure.root)
        self._expected_objects = contents(self.expected.structure.root)
        self._seen: set[tuple[object, object]] = set()  # shared and cyclic parts are visited once
        self._named: set[int] = set()

    def visit(self, actual: Node, expected: Node, path: str) -> None:
        """Compare two parts."""
        if isinstance(actual, Known):
            actual = self._actual_objects[actual.slot]
        if isinstance(expected, Known):
            expected = self._expected_objects[expected.slot]
        if isinstance(actual, Leaf) and isinstance(expected, Leaf):
            self._visit_tensors(actual, expected, path)
        elif type(actual) is not type(expected) or _kind(actual) != _kind(expected):
            self._mismatch(
                path, f"it is {_with_article(_kind(actual))}, expected {_with_article(_kind(expected))}"
            )
        elif isinstance(actual, Constant) and isinstance(expected, Constant):
            self._visit_constants(actual.value, expected.value, path)
        elif (id(actual), id(expected)) not in self._seen:
            self._seen.add((id(actual), id(expected)))
            self._visit_parts(actual, expected, path)

    def _visit_parts(self, actual: Node, expected: Node, path: str) -> None:
        if isinstance(actual, (Tuple, List)) and isinstance(expected, (Tuple, List)):
            self._visit_sequences(actual.items, expected.items, path)
        elif isinstance(actual, Dict) and isinstance(expected, Dict):
            self._visit_mappings((actual.keys, actual.items), (expected.keys, expected.items), path)
        elif isinstance(actual, Object) and isinstance(expected, Object):
            self._visit_sequences(actual.arguments, expected.arguments, path)
            self._visit_sequences(actual.items, expected.items, path)
            self._visit_mappings((actual.keys, actual.values), (expected.keys, expected.values), path)
            if actual.state is not None and expected.state is not None:
                self.visit(actual.state, expected.state, path)
            elif actual.state is not expected.state:
                self._mismatch(path, "only one of the two has attributes")

    def _visit_sequences(self, actual: Sequence[Node], expected: Sequence[Node], path: str) -> None:
        for i, (got, wanted) in enumerate(zip(actual, expected, strict=False)):
            self.visit(got, wanted, f"{path}[{i}]")
        self._unpaired((f"{path}[{i}]" for i in range(len(actual), len(expected))), "it is missing")
        self._unpaired((f"{path}[{i}]" for i in range(len(expected), len(actual))), "it was not expected")

    def _visit_mappings(
        self,
        actual: tuple[Sequence[object], Sequence[Node]],
        expected: tuple[Sequence[object], Sequence[Node]],
        path: str,
    ) -> None:
        got = dict(zip(*actual, strict=True))
        wanted = dict(zip(*expected, strict=True))
        for key in (key for key in wanted if key in got):
            self.visit(got[key], wanted[key], _join(path, key))
        self._unpaired((_join(path, key) for key in wanted if key not in got), "it is missing")
        self._unpaired((_join(path, key) for key in got if key not in wanted), "it was not expected")

    def _visit_tensors(self, actual: Leaf, expected: Leaf, path: str) -> None:
        pair = (actual.index, expected.index)
        if pair in self._seen:
            return
        self._seen.add(pair)
        if expected.index not in self._named:
            # The structure knows the names of a class's fields; this walk knows only their positions.
            path = self.expected.structure.paths[expected.index]
            self._named.add(expected.index)
        got, wanted = self.actual.leaves[actual.index], self.expected.leaves[expected.index]
        self.rows.append(compare_tensors(got, wanted, path=path or "output", tolerance=self.tolerance))

    def _visit_constants(self, actual: object, expected: object, path: str) -> None:
        if isinstance(actual, float) and isinstance(expected, float):
            # A float that a model returns usually was a float32 tensor, so float32's tolerance applies.
            allowed = self.tolerance or tolerance_for(torch.float32)
            got, wanted = (torch.tensor(value, dtype=torch.float64) for value in (actual, expected))
            self.rows.append(compare_tensors(got, wanted, path=path or "output", tolerance=allowed))
        elif isinstance(expected, _PLAIN) and not same_value(actual, expected):
            self._mismatch(path, f"it is {actual!r}, expected {expected!r}")

    def _unpaired(self, paths: Iterable[str], detail: str) -> None:
        for path in paths:
            self._mismatch(path, detail)

    def _mismatch(self, path: str, detail: str) -> None:
        self.rows.append(unlike(path or "output", detail))


def _kind(node: Node) -> str:
    """Return the class name of the value that a node represents."""
    if isinstance(node, Leaf):
        return "tensor"
    if isinstance(node, Constant):
        return type(node.value).__name__
    if isinstance(node, Object):
        return node.kind
    return type(node).__name__.lower()


def _with_article(noun: str) -> str:
    return "None" if noun == "NoneType" else f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def _join(path: str, key: object) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]"

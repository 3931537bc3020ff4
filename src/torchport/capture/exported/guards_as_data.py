"""Converts torch's guards on the input sizes of a captured program to plain data.

See `torchport.targets.size_terms`, which evaluates them.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Mapping
from typing import Any

from torch.export import ExportedProgram

from torchport.capture.exported.dynamic_shapes import input_shapes
from torchport.errors import CaptureError
from torchport.torch_private import ValueRanges, size_guards

_COMPARISONS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
# The functions of sympy, and torch's additions, that occur in size expressions, by name.
_FUNCTIONS = {
    "Add": "+", "Mul": "*", "FloorDiv": "//", "CleanDiv": "//", "Mod": "%", "PythonMod": "%",
    "Max": "max", "Min": "min",
}  # fmt: skip
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}


def guards_of(program: ExportedProgram) -> list[object]:
    """Return all of torch's assumptions about the sizes of a captured program, as data.

    Raises:
        CaptureError: this torch does not expose its guards, or one of them has no representation as data.
    """
    guards: list[object] = []
    symbols: dict[str, object] = {}
    derived: list[tuple[object, object]] = []
    for leaf, shape in enumerate(input_shapes(program)):
        for dim, size in enumerate(shape):
            place = ["size", leaf, dim]
            if isinstance(size, int):
                guards.append(["==", place, size])
            elif size.is_symbol and str(size) not in symbols:  # type: ignore[attr-defined]  # sympy has no types
                symbols[str(size)] = place
            else:
                derived.append((place, size))
    guards += [["==", place, size_term(size, symbols)] for place, size in derived]
    for symbol, limits in program.range_constraints.items():
        if symbol.is_symbol and str(symbol) in symbols:
            guards += [[sign, symbols[str(symbol)], limit] for sign, limit in _finite(limits)]
    texts = size_guards(program)  # Python expressions, of terms such as L['leaves'][0].size()[1]
    if texts is None:
        raise CaptureError("this version of torch does not expose its guards on sizes")
    return guards + [_term(text, symbols) for text in texts]


def size_term(expression: Any, symbols: Mapping[str, object]) -> object:
    """Return a size as data.

    Args:
        expression: a sympy expression.
        symbols: the terms for its symbols, by name.

    Raises:
        CaptureError: the expression has no representation as data.
    """
    kind = type(expression).__name__
    if expression.is_Integer:
        return int(expression)
    if expression.is_symbol and str(expression) in symbols:
        return symbols[str(expression)]
    if kind == "Pow" and expression.args[1].is_Integer and expression.args[1] > 0:
        factors = [size_term(expression.args[0], symbols)] * int(expression.args[1])
        return functools.reduce(lambda left, right: ["*", left, right], factors)
    if kind in _FUNCTIONS:
        terms = [size_term(part, symbols) for part in expression.args]
        return functools.reduce(lambda left, right: [_FUNCTIONS[kind], left, right], terms)
    raise CaptureError(f"the size {expression} has no representation as data")


def _finite(limits: ValueRanges[Any]) -> list[tuple[str, int]]:
    bounds = ((">=", limits.lower), ("<=", limits.upper))
    return [(sign, int(bound)) for sign, bound in bounds if abs(bound) < 2**62]


def _term(text: str, symbols: Mapping[str, object]) -> object:
    """Return a Python condition as data; see `torchport.targets.size_terms`."""
    return _Terms(text, symbols).term(ast.parse(text, mode="eval").body)


class _Terms:
    """Converts a Python condition to data.

    Args:
        text: the whole condition, for messages.
        symbols: the terms for its names.
    """

    def __init__(self, text: str, symbols: Mapping[str, object]) -> None:
        self._text = text
        self._symbols = symbols

    def term(self, node: ast.expr) -> object:
        """Return a subexpression as data."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in self._symbols:
            return self._symbols[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return [_ARITHMETIC[type(node.op)], self.term(node.left), self.term(node.right)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return ["-", 0, self.term(node.operand)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ["not", self.term(node.operand)]
        if isinstance(node, ast.BoolOp):
            head = "and" if isinstance(node.op, ast.And) else "or"
            return [head, *[self.term(value) for value in node.values]]
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            return [node.func.id, *[self.term(argument) for argument in node.args]]
        return self._size(node)

    def _comparison(self, node: ast.Compare) -> object:
        terms = [self.term(part) for part in (node.left, *node.comparators)]
        signs = [_COMPARISONS.get(type(sign)) for sign in node.ops]
        if None in signs:
            raise self._refusal()
        pairs = [[sign, *pair] for sign, pair in zip(signs, itertools.pairwise(terms), strict=True)]
        return pairs[0] if len(pairs) == 1 else ["and", *pairs]

    def _size(self, node: ast.expr) -> object:
        """Return the term for `L['leaves'][TENSOR].size()[DIMENSION]`."""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            parts = ast.unparse(node.value).removeprefix("L['leaves'][").removesuffix("].size()")
            if parts.isdigit() and ast.unparse(node.value) == f"L['leaves'][{parts}].size()":
                return ["size", int(parts), node.slice.value]
        raise self._refusal()

    def _refusal(self) -> CaptureError:
        return CaptureError(f"torch guards on {self._text}, which has no representation as data")

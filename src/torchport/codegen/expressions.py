"""Writes a node as the Python expression that a person would write for it."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from torch import fx

from torchport.capture import apply_function, assemble, named
from torchport.codegen.code import Code, Group, attribute, call, flat, keywords
from torchport.codegen.constants import constant
from torchport.codegen.imports import Imports
from torchport.torch_private import OpOverload, OpOverloadPacket

ATOM = 20
Expression: TypeAlias = "tuple[Code, int]"
Operand: TypeAlias = "Callable[[fx.Node], Expression]"

BINARY: dict[object, tuple[str, int]] = {
    operator.add: ("+", 10), operator.sub: ("-", 10), operator.mul: ("*", 11), operator.truediv: ("/", 11),
    operator.floordiv: ("//", 11), operator.mod: ("%", 11), operator.matmul: ("@", 11),
    operator.pow: ("**", 13), operator.lshift: ("<<", 9), operator.rshift: (">>", 9),
    operator.and_: ("&", 8), operator.xor: ("^", 7), operator.or_: ("|", 6), operator.eq: ("==", 5),
    operator.ne: ("!=", 5), operator.lt: ("<", 5), operator.le: ("<=", 5), operator.gt: (">", 5),
    operator.ge: (">=", 5),
}  # fmt: skip
_SIMPLE = re.compile(r"-?[\w.]+")
UNARY = {operator.neg: "-", operator.invert: "~"}
AUGMENTED = {
    operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.itruediv: "/=",
    operator.ifloordiv: "//=", operator.imod: "%=", operator.ipow: "**=", operator.iand: "&=",
    operator.ior: "|=", operator.ixor: "^=",
}  # fmt: skip
_AS_METHOD = {
    operator.iadd: "add_", operator.isub: "sub_", operator.imul: "mul_", operator.itruediv: "div_",
    operator.ifloordiv: "floor_divide_", operator.imod: "remainder_", operator.ipow: "pow_",
    operator.iand: "bitwise_and_", operator.ior: "bitwise_or_", operator.ixor: "bitwise_xor_",
}  # fmt: skip


class Expressions:
    """Writes nodes as expressions.

    Args:
        imports: the file's imports.
        operand: writes a node that is used as an operand.
    """

    def __init__(self, imports: Imports, operand: Operand) -> None:
        self._imports = imports
        self._operand = operand

    def of(self, node: fx.Node) -> Expression:
        """Return a node's expression and its operator precedence."""
        if node.op == "call_method":
            return self._method(node)
        target = node.target
        if target in BINARY and len(node.args) == 2:
            return self._binary(*BINARY[target], *node.args)
        if target in UNARY:
            return (UNARY[target], *self._tight(node.args[0], 12)), 12
        if target is operator.getitem:
            return (*self._tight(node.args[0], ATOM), Group("[", self._index(node.args[1]), "]")), ATOM
        if target is getattr:
            return attribute(self._tight(node.args[0], ATOM), str(node.args[1])), ATOM
        if target in _AS_METHOD:
            function = (*self._tight(node.args[0], ATOM), f".{_AS_METHOD[target]}")
            return call(function, [self.argument(arg) for arg in node.args[1:]]), ATOM
        if target is named:
            return (self._imports.name_of(named(*node.args)),), ATOM
        if target is apply_function:
            module, name, *rest = node.args
            imported = self._imports.name_of(named(str(module), str(name)))
            return call((f"{imported}.apply",), [self.argument(arg) for arg in rest]), ATOM
        if target is assemble:
            kind, state = node.args
            assert isinstance(state, dict)
            self._imports.assembles = True
            return call(("assemble",), [self.argument(kind), *self.keywords(state)]), ATOM
        assert callable(target)
        args = [self.argument(arg) for arg in node.args]
        args += self.keywords(dropped_defaults(target, node.kwargs))
        return call((self._imports.name_of(target),), args), ATOM

    def argument(self, value: object, hint: str = "") -> Code:
        """Return the code of an argument: nodes, containers of them, constants."""
        if isinstance(value, fx.Node):
            return self._operand(value)[0]
        if isinstance(value, slice):
            return self._slice(value)
        if isinstance(value, (tuple, list)):
            items = tuple(self.argument(item, hint) for item in value)
            if isinstance(value, tuple):
                return (Group("(", items, ")", comma=len(items) == 1, literal=True),)
            return (Group("[", items, "]", literal=True),)
        if isinstance(value, dict):
            entries = tuple(
                (*constant(key, self._imports), ": ", *self.argument(item)) for key, item in value.items()
            )
            return (Group("{", entries, "}", literal=True),)
        return constant(value, self._imports, hint)

    def _method(self, node: fx.Node) -> Expression:
        receiver = self._tight(node.args[0], ATOM)
        if node.target == "size" and len(node.args) == 2 and not node.kwargs:
            return (*receiver, ".shape", Group("[", (self.argument(node.args[1]),), "]")), ATOM
        args = [self.argument(arg) for arg in node.args[1:]]
        args += self.keywords(node.kwargs)
        return call(attribute(receiver, str(node.target)), args), ATOM

    def keywords(self, kwargs: Mapping[str, object]) -> list[Code]:
        """Return the code of keyword arguments."""
        return keywords({name: self.argument(value, name) for name, value in kwargs.items()})

    def _binary(self, sign: str, strength: int, left: object, right: object) -> Expression:
        if sign == "**":  # right-associative; written without spaces between names and numbers
            base, power = self._tight(left, strength + 1), self._tight(right, 12)
            close = _SIMPLE.fullmatch(flat(base)) and _SIMPLE.fullmatch(flat(power))
            return (*base, "**" if close else " ** ", *power), strength
        return (*self._tight(left, strength), f" {sign} ", *self._tight(right, strength + 1)), strength

    def _tight(self, value: object, strength: int) -> Code:
        """Return an operand, in parentheses if its precedence is lower than `strength`."""
        if isinstance(value, fx.Node):
            code, own = self._operand(value)
        else:
            code, own = self.argument(value), ATOM
            if isinstance(value, (int, float)) and value < 0:
                own = 12
        return code if own >= strength else (Group("(", (code,), ")"),)

    def _slice(self, value: slice) -> Code:
        """Return a slice, with spaces around its colons if a bound is more than a name or a number."""
        bounds = [value.start, value.stop] + ([value.step] if value.step is not None else [])
        parts = [() if bound is None else self.argument(bound) for bound in bounds]
        apart = any(not _SIMPLE.fullmatch(flat(part)) for part in parts if part)
        code: Code = ()
        for index, part in enumerate(parts):
            if index:
                before = " " if apart and parts[index - 1] else ""
                code = (*code, before + ":" + (" " if apart and part else ""))
            code = (*code, *part)
        return code

    def _index(self, index: object) -> tuple[Code, ...]:
        if isinstance(index, tuple) and index:
            return tuple(self.argument(item) for item in index)
        return (self.argument(index),)


def dropped_defaults(
    target: Callable[..., object], kwargs: dict[str, fx.node.Argument]
) -> dict[str, fx.node.Argument]:
    """Return keyword arguments without those that equal the function's defaults."""
    defaults = _defaults(target)
    return {
        name: value
        for name, value in kwargs.items()
        if name not in defaults or type(value) is not type(defaults[name]) or value != defaults[name]
    }


# C++ functions have no signature to read defaults from.
_BUILTIN_DEFAULTS: dict[str, dict[str, object]] = {
    "scaled_dot_product_attention": {
        "attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False,
    },
}  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _defaults(target: Callable[..., object]) -> dict[str, object]:
    name = getattr(target, "__name__", "")
    if name in _BUILTIN_DEFAULTS:
        return _BUILTIN_DEFAULTS[name]
    if not getattr(target, "__module__", "").startswith("torch") or isinstance(target, type):
        return {}
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return {}
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return {}
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }

"""Classifies the functions that torch passes to a function mode: methods, properties, operators, reads."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import torch

from torchport.torch_private import set_grad_enabled


class Kind(Enum):
    """How a call is handled."""

    COMPUTE = auto()  # recorded if it returns tensors
    WRITE = auto()  # always recorded, for its side effect
    SIZES = auto()  # the numbers that it returns are tracked
    DTYPE = auto()
    DEVICE = auto()
    REQUIRES_GRAD = auto()
    VALUE = auto()  # exposes a tensor's values to Python
    GRAD_MODE = auto()


@dataclass(frozen=True, slots=True)
class Described:
    """A function as represented in a graph.

    Args:
        kind: how its calls are handled.
        target: a function, or the name of a tensor method.
        name: its common name.
        name_of_property: follows the first argument if the call reads or writes a property; else empty.
        swapped: whether the first two arguments are swapped, as in `1 - x`.
    """

    kind: Kind
    target: Callable[..., object] | str
    name: str
    name_of_property: tuple[str, ...] = ()
    swapped: bool = False


_VALUES = frozenset(
    "item tolist numpy __bool__ __int__ __float__ __complex__ __index__ __array__ __contains__ equal "
    "allclose is_nonzero".split()
)
_SIZES = frozenset("size numel nelement stride".split())
_REFLECTED: dict[str, Callable[..., object]] = {
    "__radd__": operator.add, "__rsub__": operator.sub, "__rmul__": operator.mul,
    "__rdiv__": operator.truediv, "__rtruediv__": operator.truediv, "__rfloordiv__": operator.floordiv,
    "__rmod__": operator.mod, "__rpow__": operator.pow, "__rmatmul__": operator.matmul,
    "__rlshift__": operator.lshift, "__rrshift__": operator.rshift, "__rand__": operator.and_,
    "__ror__": operator.or_, "__rxor__": operator.xor,
}  # fmt: skip
_OPERATORS: dict[str, Callable[..., object]] = {
    "__getitem__": operator.getitem, "__eq__": operator.eq, "__ne__": operator.ne, "__lt__": operator.lt,
    "__le__": operator.le, "__gt__": operator.gt, "__ge__": operator.ge, "__pow__": operator.pow,
    "__floordiv__": operator.floordiv, "__mod__": operator.mod, "__and__": operator.and_,
    "__or__": operator.or_, "__xor__": operator.xor, "__lshift__": operator.lshift,
    "__rshift__": operator.rshift, "__invert__": operator.invert, "__neg__": operator.neg,
    "__abs__": abs, "__matmul__": operator.matmul, "__truediv__": operator.truediv,
    "__div__": operator.truediv, "__add__": operator.add, "__sub__": operator.sub, "__mul__": operator.mul,
    "__iadd__": operator.iadd, "__isub__": operator.isub, "__imul__": operator.imul,
    "__itruediv__": operator.itruediv, "__idiv__": operator.itruediv, "__ipow__": operator.ipow,
    "__ifloordiv__": operator.ifloordiv, "__imod__": operator.imod, "__iand__": operator.iand,
    "__ior__": operator.ior, "__ixor__": operator.ixor,
}  # fmt: skip
# How a function mode sees `x + y`; `x.add(y)` looks the same, and is equivalent.
_BINARY_METHODS: dict[str, Callable[..., object]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "matmul": operator.matmul, "neg": operator.neg, "gt": operator.gt, "lt": operator.lt,
    "ge": operator.ge, "le": operator.le, "add_": operator.iadd, "sub_": operator.isub,
    "mul_": operator.imul, "div_": operator.itruediv, "bitwise_not": operator.invert,
    "__and__": operator.and_, "__or__": operator.or_, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "pow": operator.pow,
    "remainder": operator.mod, "floor_divide": operator.floordiv,
}  # fmt: skip
_PROPERTIES = {
    "shape": Kind.SIZES,
    "dtype": Kind.DTYPE,
    "device": Kind.DEVICE,
    "requires_grad": Kind.REQUIRES_GRAD,
}


@functools.lru_cache(maxsize=4096)
def describe(function: Callable[..., object]) -> Described:
    """Return the description of a function."""
    name = getattr(function, "__name__", str(function))
    if name in ("__get__", "__set__"):
        return _property(function, name)
    if function is set_grad_enabled:
        return Described(Kind.GRAD_MODE, function, name)
    if name in _VALUES:
        return Described(Kind.VALUE, name, name)
    method = _method_names().get(id(function))
    if method is None:
        return Described(Kind.COMPUTE, function, name)
    name = method
    if name in _SIZES:
        return Described(Kind.SIZES, name, name)
    if name == "__setitem__":
        return Described(Kind.WRITE, operator.setitem, name)
    if name in _REFLECTED:
        return Described(Kind.COMPUTE, _REFLECTED[name], name, swapped=True)
    if name in _OPERATORS:
        return Described(Kind.COMPUTE, _OPERATORS[name], name)
    return Described(Kind.COMPUTE, name, name)


def as_operator(described: Described, args: tuple[object, ...], kwargs: dict[str, object]) -> Described:
    """Turn `x.add(y)` into `x + y`, if the arguments permit it."""
    target = _BINARY_METHODS.get(described.name) if isinstance(described.target, str) else None
    if target is None or kwargs:
        return described
    unary = target in (operator.neg, operator.invert)
    if len(args) != (1 if unary else 2):
        return described
    return Described(described.kind, target, described.name)


def _property(function: Callable[..., object], access: str) -> Described:
    name = str(getattr(function, "__self__").__name__)  # noqa: B009  # the type stubs of method wrappers lack it
    if access == "__set__":
        return Described(Kind.WRITE, setattr, name, (name,))
    return Described(_PROPERTIES.get(name, Kind.COMPUTE), getattr, name, (name,))


@functools.cache
def _method_names() -> dict[int, str]:
    """Return the names of tensor methods, by their ids: the `__name__` of `__pow__` is `pow`."""
    names: dict[int, str] = {}
    for name in sorted(dir(torch.Tensor), key=lambda name: name.startswith("_")):
        method = inspect.getattr_static(torch.Tensor, name)
        if callable(method):
            names.setdefault(id(method), name)
    return names

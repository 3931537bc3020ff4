"""Simulated functions on each element by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.registry import KERNELS, kernel
from torchport.targets.ttnn.simulator.tensors import (
    FLOATS,
    Held,
    Made,
    hold,
    hold_chosen,
    need_dtype,
    need_rank,
    need_tile,
)
from torchport.targets.ttnn.ttnn_program import Dtype

Number = bool | int | float
Operand = Held | Number

_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu, "relu6": functional.relu6, "silu": functional.silu,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1,
    "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "abs": torch.abs, "neg": torch.neg,
    "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos,
    "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "asinh": torch.asinh, "acosh": torch.acosh,
    "atanh": torch.atanh, "erf": torch.erf, "erfc": torch.erfc, "square": torch.square,
    "hardswish": functional.hardswish, "hardsigmoid": functional.hardsigmoid, "mish": functional.mish,
    "softsign": functional.softsign, "isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite,
    "logical_not": torch.logical_not, "bitwise_not": torch.bitwise_not, "selu": functional.selu,
    "log_sigmoid": functional.logsigmoid,
}  # fmt: skip
_CHOOSING = frozenset("relu abs neg".split())  # what comes out is rounded because what goes in is
_ON_INTEGERS = frozenset("relu abs neg logical_not bitwise_not square".split())


def _unary(name: str, compute: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Held], Held]:
    dtypes = ("int32",) if name == "bitwise_not" else FLOATS + (("int32",) if name in _ON_INTEGERS else ())

    held = hold_chosen if name in _CHOOSING else hold

    def run(tensor: Held) -> Held:
        need_dtype(tensor, *dtypes)
        need_rank(tensor)
        return held(compute(tensor.data), tensor.dtype, tensor.layout)

    return run


for _name, _compute in _UNARY.items():
    KERNELS[_name] = _unary(_name, _compute)


@kernel("gelu")
def gelu(tensor: Held, *, variant: str = "GeluVariant.Accurate") -> Held:
    """The exact function, or its approximation by tanh."""
    need_dtype(tensor, *FLOATS)
    approximate = {"GeluVariant.Accurate": "none", "GeluVariant.Tanh": "tanh"}[variant]
    return hold(functional.gelu(tensor.data, approximate=approximate), tensor.dtype, tensor.layout)


@kernel("leaky_relu")
def leaky_relu(tensor: Held, negative_slope: float) -> Held:
    """x where it is positive, a part of it elsewhere."""
    need_dtype(tensor, *FLOATS)
    return hold(functional.leaky_relu(tensor.data, negative_slope), tensor.dtype, tensor.layout)


@kernel("elu")
def elu(tensor: Held, *, alpha: float) -> Held:
    """x where it is positive, alpha (exp(x) - 1) elsewhere."""
    need_dtype(tensor, *FLOATS)
    return hold(functional.elu(tensor.data, alpha), tensor.dtype, tensor.layout)


@kernel("softplus")
def softplus(tensor: Held, *, beta: float, threshold: float) -> Held:
    """A smooth relu."""
    need_dtype(tensor, *FLOATS)
    return hold(functional.softplus(tensor.data, beta, threshold), tensor.dtype, tensor.layout)


@kernel("clamp")
def clamp(tensor: Held, *, min: Number | None = None, max: Number | None = None) -> Held:
    """Limits on both sides."""
    need_dtype(tensor, *FLOATS, "int32")
    return hold(torch.clamp(tensor.data, min, max), tensor.dtype, tensor.layout)


@kernel("typecast")
def typecast(tensor: Held, dtype: Dtype) -> Held:
    """Another dtype; floats are cut off towards zero when they become integers."""
    data = tensor.data
    if tensor.dtype in FLOATS and dtype not in FLOATS:
        data = torch.trunc(data)
    return hold(data, dtype, tensor.layout)


_BINARY: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum,
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
    "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    "atan2": torch.atan2,
    "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor,
}  # fmt: skip
_COMPARISONS = frozenset("eq ne lt le gt ge logical_and logical_or logical_xor".split())
_INTEGERS_ONLY = frozenset("bitwise_and bitwise_or bitwise_xor".split())
_FLOATS_ONLY = frozenset({"atan2"})
_TENSORS_ONLY = frozenset({"atan2"})


def _pair(name: str, left: Held, right: Operand) -> tuple[torch.Tensor, torch.Tensor | Number]:
    """Return both operands' values, checked: what may meet what."""
    need_rank(left)
    dtypes: tuple[str, ...] = (*FLOATS, "int32")
    if name in _INTEGERS_ONLY:
        dtypes = ("int32",)
    elif name in _FLOATS_ONLY:
        dtypes = FLOATS
    need_dtype(left, *dtypes)
    if not isinstance(right, Held):
        if name in _TENSORS_ONLY:
            refuse("argument", f"ttnn.{name} takes no number")
        if left.dtype == "int32" and (not float(right).is_integer() or abs(right) >= 2**31):
            refuse("argument", f"{right!r} cannot meet an int32 tensor")
        return left.data, right
    need_dtype(right, *dtypes)
    if left.dtype != right.dtype:
        refuse("dtype", f"ttnn.{name} meets {left.dtype} with {right.dtype}")
    if left.layout != right.layout:
        refuse("argument", "one tensor is row-major, the other is not")
    return left.data, right.data


def _activated(data: torch.Tensor, activations: tuple[Made, ...] | None) -> torch.Tensor:
    for item in activations or ():
        data = activation(item)(data)
    return data


def activation(made: Made | str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return an activation that another function applies to its result."""
    if isinstance(made, str):
        return functional.gelu if made == "gelu" else _UNARY[made]
    name = str(made.args[0]).removeprefix("UnaryOpType.").lower()
    if name == "gelu":
        return functional.gelu
    return _UNARY[name]


def _binary(name: str, compute: Callable[[Any, Any], torch.Tensor]) -> Callable[..., Held]:
    def run(
        left: Held,
        right: Operand,
        *,
        dtype: Dtype | None = None,
        activations: tuple[Made, ...] | None = None,
    ) -> Held:
        a, b = _pair(name, left, right)
        if not isinstance(b, torch.Tensor) and name not in ("add", "sub", "mul"):
            b = hold(torch.tensor(b, dtype=a.dtype, device=a.device), left.dtype).data
        result = _activated(compute(a, b), activations)
        return hold(result, dtype or left.dtype, left.layout)

    return run


for _name, _function in _BINARY.items():
    KERNELS[_name] = _binary(_name, _function)


@kernel("rsub")
def rsub(left: Held, right: Operand) -> Held:
    """The right operand less the left one."""
    a, b = _pair("sub", left, right)
    return hold(b - a, left.dtype, left.layout)


@kernel("div")
def div(left: Held, right: Operand) -> Held:
    """A quotient of floats."""
    need_dtype(left, *FLOATS)
    a, b = _pair("div", left, right)
    return hold(a / b, left.dtype, left.layout)


@kernel("pow")
def power(left: Held, right: Operand) -> Held:
    """A power of floats."""
    need_dtype(left, *FLOATS)
    a, b = _pair("pow", left, right)
    if not isinstance(b, torch.Tensor) and not math.isfinite(b):
        refuse("argument", f"the exponent is {b!r}")
    return hold(torch.pow(a, b), left.dtype, left.layout)


@kernel("rpow")
def rpow(exponent: Held, base: Number) -> Held:
    """A number to the power of a tensor."""
    need_dtype(exponent, *FLOATS)
    return hold(torch.pow(base, exponent.data), exponent.dtype, exponent.layout)


KERNELS["remainder"] = lambda left, right: _modulo(left, right, torch.remainder)
KERNELS["fmod"] = lambda left, right: _modulo(left, right, torch.fmod)


def _modulo(left: Held, right: Operand, compute: Callable[[Any, Any], torch.Tensor]) -> Held:
    a, b = _pair("remainder", left, right)
    return hold(compute(a, b), left.dtype, left.layout)


@kernel("where")
def where(condition: Held, yes: Operand, no: Operand) -> Held:
    """One of two, by a mask of zeros and ones."""
    need_tile(condition, yes, no)
    need_rank(condition)
    tensors = [item for item in (yes, no) if isinstance(item, Held)]
    if not tensors:
        refuse("argument", "ttnn.where of two numbers does not say in which dtype")
    if len({item.dtype for item in tensors}) > 1:
        refuse("dtype", f"ttnn.where of {' and '.join(item.dtype for item in tensors)}")
    if len(tensors) == 1 and condition.dtype != tensors[0].dtype:
        refuse("dtype", f"ttnn.where of {tensors[0].dtype} and a number, by a mask in {condition.dtype}")
    need_dtype(tensors[0], *FLOATS, "int32")
    held = tensors[0].data.dtype
    values = [
        item.data if isinstance(item, Held) else torch.tensor(item, dtype=held, device=condition.data.device)
        for item in (yes, no)
    ]
    return hold(torch.where(condition.data != 0, values[0], values[1]), tensors[0].dtype)

"""Simulated elementwise functions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional

from torchport.targets.ttnn.functions import function
from torchport.targets.ttnn.refusal import refuse
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

_Unary = Callable[[torch.Tensor], torch.Tensor]
_Kernels = Callable[[str, Callable[..., torch.Tensor]], Callable[..., Held]]
_ACTIVATIONS: dict[str, _Unary] = {}  # those that other functions can apply to their results


def _register(
    functions: dict[str, Callable[..., torch.Tensor]], kernel: _Kernels, *, placeable: bool = False
) -> None:
    """Register functions by ttnn's names, each with a kernel made from the torch function."""
    for name, compute in functions.items():
        function(name, placeable=placeable, flops=None)(kernel(name, compute))


def _unary(dtypes: tuple[str, ...] = FLOATS, held: Callable[..., Held] = hold) -> _Kernels:
    """Return a factory of kernels for elementwise functions of one operand with these dtypes."""

    def kernel(name: str, compute: _Unary) -> Callable[[Held], Held]:
        def run(tensor: Held) -> Held:
            need_dtype(tensor, *dtypes)
            need_rank(tensor)
            return held(compute(tensor.data), tensor.dtype, tensor.layout)

        _ACTIVATIONS[name] = compute
        return run

    return kernel


_WITH_INTEGERS = (*FLOATS, "int32")
_register(
    {"relu": torch.relu, "abs": torch.abs, "neg": torch.neg},
    _unary(_WITH_INTEGERS, hold_chosen),  # results are rounded already because operands are
    placeable=True,
)
_register({"square": torch.square}, _unary(_WITH_INTEGERS), placeable=True)
_register({"logical_not": torch.logical_not}, _unary(_WITH_INTEGERS))
_register({"bitwise_not": torch.bitwise_not}, _unary(("int32",)))
_register(
    {
        "relu6": functional.relu6, "silu": functional.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
        "exp": torch.exp, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "hardswish": functional.hardswish,
        "hardsigmoid": functional.hardsigmoid,
    },
    _unary(), placeable=True,
)  # fmt: skip
_register(
    {
        "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2, "log10": torch.log10,
        "log1p": torch.log1p, "reciprocal": torch.reciprocal, "sign": torch.sign, "floor": torch.floor,
        "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc, "sin": torch.sin, "cos": torch.cos,
        "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh,
        "cosh": torch.cosh, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh,
        "erf": torch.erf, "erfc": torch.erfc, "mish": functional.mish,
    },
    _unary(),
)  # fmt: skip


def activation(made: Made | str) -> _Unary:
    """Return the torch function of an activation that another function applies to its result."""
    name = made if isinstance(made, str) else str(made.args[0]).removeprefix("UnaryOpType.").lower()
    return _ACTIVATIONS[name]


@function("gelu", placeable=True, flops=None)
def gelu(tensor: Held, *, variant: str = "GeluVariant.Accurate") -> Held:
    """Compute gelu exactly, or approximated by tanh."""
    need_dtype(tensor, *FLOATS)
    approximate = {"GeluVariant.Accurate": "none", "GeluVariant.Tanh": "tanh"}[variant]
    return hold(functional.gelu(tensor.data, approximate=approximate), tensor.dtype, tensor.layout)


@function("leaky_relu", placeable=False, flops=None)
def leaky_relu(tensor: Held, negative_slope: float) -> Held:
    """Compute x where it is positive, a fraction of it elsewhere."""
    need_dtype(tensor, *FLOATS)
    return hold(functional.leaky_relu(tensor.data, negative_slope), tensor.dtype, tensor.layout)


@function("elu", placeable=False, flops=None)
def elu(tensor: Held, *, alpha: float) -> Held:
    """Compute x where it is positive, alpha (exp(x) - 1) elsewhere."""
    need_dtype(tensor, *FLOATS)
    return hold(functional.elu(tensor.data, alpha), tensor.dtype, tensor.layout)


@function("softplus", placeable=False, flops=None)
def softplus(tensor: Held, *, beta: float, threshold: float) -> Held:
    """Compute softplus, a smooth relu."""
    need_dtype(tensor, *FLOATS)
    return hold(functional.softplus(tensor.data, beta, threshold), tensor.dtype, tensor.layout)


@function("clamp", placeable=False, flops=None)
def clamp(tensor: Held, *, min: Number | None = None, max: Number | None = None) -> Held:
    """Clamp between limits."""
    need_dtype(tensor, *FLOATS, "int32")
    return hold(torch.clamp(tensor.data, min, max), tensor.dtype, tensor.layout)


@function("typecast", placeable=True, flops=None, by_host=True)
def typecast(tensor: Held, dtype: Dtype) -> Held:
    """Convert to another dtype; floats are truncated towards zero when converted to integers."""
    data = tensor.data
    if tensor.dtype in FLOATS and dtype not in FLOATS:
        data = torch.trunc(data)
    return hold(data, dtype, tensor.layout)


def _pair(
    name: str, left: Held, right: Operand, dtypes: tuple[str, ...] = _WITH_INTEGERS, *, mixes: bool = False
) -> tuple[torch.Tensor, torch.Tensor | Number]:
    """Return both operands' values, after checking that their dtypes and layouts are compatible."""
    need_rank(left)
    need_dtype(left, *dtypes)
    if not isinstance(right, Held):
        if left.dtype == "int32" and (not float(right).is_integer() or abs(right) >= 2**31):
            refuse("argument", f"{right!r} cannot be combined with an int32 tensor")
        return left.data, right
    need_dtype(right, *dtypes)
    if left.dtype != right.dtype and not (mixes and left.dtype in FLOATS and right.dtype in FLOATS):
        refuse("dtype", f"ttnn.{name} does not take {left.dtype} with {right.dtype}")
    if left.layout != right.layout:
        refuse("argument", "one tensor is row-major, the other is not")
    return left.data, right.data


def _activated(data: torch.Tensor, activations: tuple[Made, ...]) -> torch.Tensor:
    for item in activations:
        data = activation(item)(data)
    return data


def _binary(dtypes: tuple[str, ...] = _WITH_INTEGERS, *, arithmetic: bool = False) -> _Kernels:
    """Return a factory of kernels for elementwise functions of two operands.

    Args:
        dtypes: the dtypes that they take.
        arithmetic: whether floats of two dtypes may be combined, and numbers are not rounded to the tensor's
            dtype first.
    """

    def kernel(name: str, compute: Callable[..., torch.Tensor]) -> Callable[..., Held]:
        def run(
            left: Held,
            right: Operand,
            *,
            dtype: Dtype | None = None,
            activations: tuple[Made, ...] | None = None,
        ) -> Held:
            a, b = _pair(name, left, right, dtypes, mixes=arithmetic)
            if not arithmetic and not isinstance(b, torch.Tensor):
                b = hold(torch.tensor(b, dtype=a.dtype, device=a.device), left.dtype).data
            # Keep no reference to the unrounded result, which may be large, while it is rounded.
            return hold(_activated(compute(a, b), activations or ()), dtype or left.dtype, left.layout)

        return run

    return kernel


def _plain(dtypes: tuple[str, ...] = _WITH_INTEGERS) -> _Kernels:
    """Return a factory of kernels for elementwise functions of two operands without keyword arguments."""

    def kernel(name: str, compute: Callable[..., torch.Tensor]) -> Callable[[Held, Operand], Held]:
        return lambda left, right: hold(compute(*_pair(name, left, right, dtypes)), left.dtype, left.layout)

    return kernel


_register({"add": torch.add, "sub": torch.sub, "mul": torch.mul}, _binary(arithmetic=True), placeable=True)
_register({"div": torch.div}, _binary(FLOATS, arithmetic=True), placeable=True)
_register({"maximum": torch.maximum, "minimum": torch.minimum}, _binary(), placeable=True)
_register(
    {
        "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
        "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    },
    _binary(),
)  # fmt: skip
_register(
    {"bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor},
    _binary(("int32",)),
)
_register({"rsub": lambda a, b: b - a}, _plain(), placeable=True)
_register({"remainder": torch.remainder, "fmod": torch.fmod}, _plain())


@function("atan2", placeable=False, flops=None)
def atan2(left: Held, right: Held) -> Held:
    """Compute the angle of a point."""
    if not isinstance(right, Held):
        refuse("argument", "ttnn.atan2 does not take a number")
    a, b = _pair("atan2", left, right, FLOATS)
    return hold(torch.atan2(a, b), left.dtype, left.layout)  # type: ignore[arg-type]  # both are tensors


@function("pow", placeable=False, flops=None)
def power(left: Held, right: Operand) -> Held:
    """Compute a power of floats."""
    a, b = _pair("pow", left, right, FLOATS)
    if not isinstance(b, torch.Tensor) and not math.isfinite(b):
        refuse("argument", f"the exponent is {b!r}")
    return hold(torch.pow(a, b), left.dtype, left.layout)


@function("rpow", placeable=False, flops=None)
def rpow(exponent: Held, base: Number) -> Held:
    """Raise a number to the power of a tensor."""
    need_dtype(exponent, *FLOATS)
    return hold(torch.pow(base, exponent.data), exponent.dtype, exponent.layout)


@function("where", placeable=True, flops=None)
def where(condition: Held, yes: Operand, no: Operand) -> Held:
    """Select between two operands by a mask of zeros and ones."""
    need_tile(condition, yes, no)
    need_rank(condition)
    tensors = [item for item in (yes, no) if isinstance(item, Held)]
    if not tensors:
        refuse("argument", "ttnn.where with two numbers leaves the result's dtype undefined")
    if len({item.dtype for item in tensors}) > 1:
        refuse("dtype", f"ttnn.where does not take {' with '.join(item.dtype for item in tensors)}")
    if len(tensors) == 1 and condition.dtype != tensors[0].dtype:
        refuse(
            "dtype",
            f"ttnn.where does not take {tensors[0].dtype} and a number with a mask in {condition.dtype}",
        )
    need_dtype(tensors[0], *FLOATS, "int32")
    held = tensors[0].data.dtype
    values = [
        item.data if isinstance(item, Held) else torch.tensor(item, dtype=held, device=condition.data.device)
        for item in (yes, no)
    ]
    return hold(torch.where(condition.data != 0, values[0], values[1]), tensors[0].dtype)

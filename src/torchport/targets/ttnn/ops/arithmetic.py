"""Lowers elementwise sums, products, quotients, powers and selections."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import Lowering, Result, arguments, finite_in, packet, torch_value
from torchport.targets.ttnn.operand_forms import elementwise, meeting_dtype, mixed_dtypes, number_in
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers
from torchport.targets.ttnn.ttnn_program import Dtype, Make, Name

_MIXING = frozenset({"add", "sub", "mul", "div"})  # functions that take floats of two dtypes


def binary(
    lowering: Lowering, node: fx.Node, left: object, right: object, function: str, reverse: str = ""
) -> Result:
    """Lower an op on two operands, one of which may be a number.

    Args:
        lowering, node: as in every lowering.
        left, right: the operands.
        function: the ttnn function that computes it.
        reverse: the function that computes it with its operands swapped; the same function if empty.
    """
    left, right = number_in(lowering, left), number_in(lowering, right)
    if function in _MIXING:
        dtypes, dtype = mixed_dtypes(lowering, node, (left, right))
    else:
        dtype = meeting_dtype(lowering, (left, right), torch_value(node).dtype)
        dtypes = (dtype, dtype)
    activations = fused_activation(lowering, node)

    def compute(a: Any, b: Any) -> Value:
        if not isinstance(a, Value):
            number = _number(a, dtype)
            return lowering.call(
                reverse or function, lowering.cast(b, dtype), number, activations=activations
            )
        other = b if isinstance(b, Value) else _number(b, dtype)
        return lowering.call(
            function, a, other, dtype=None if a.dtype == dtype else Name(dtype), activations=activations
        )

    if not isinstance(left, fx.Node) and not isinstance(right, fx.Node):
        return lowering.constant(
            torch.empty(torch_value(node).shape, device="meta"), node.name, node.name, dtype
        )
    return elementwise(lowering, node, (left, right), dtypes, compute)


def fused_activation(lowering: Lowering, node: fx.Node) -> tuple[Make, ...] | None:
    """Return the activation fused into an op, in ttnn's form; None if there is none."""
    name = lowering.fused.get(node)
    return (unary_with_param(name),) if name else None


def unary_with_param(name: str) -> Make:
    """Return an activation in the form that ttnn's kernels take."""
    return Make("UnaryWithParam", (activation_name(name),), ())


def activation_name(name: str) -> Name:
    """Return the library's constant for an activation."""
    return Name(f"UnaryOpType.{name.upper()}")


def _number(number: object, dtype: Dtype) -> int | float:
    """Return a number as an int or float, to match the dtype of the tensor it is combined with."""
    assert isinstance(number, (bool, int, float))
    if dtype == "int32" and float(number).is_integer():
        return int(number)
    return finite_in(float(number), dtype)


def _scaled(lowering: Lowering, node: fx.Node, operand: object, alpha: Any) -> object:
    """Return an operand multiplied by `alpha`: a number, or a node whose value is the product."""
    if alpha == 1:
        return operand
    if not isinstance(operand, fx.Node):
        return operand * alpha
    return _times(lowering, node, operand, alpha)


def _times(lowering: Lowering, node: fx.Node, operand: fx.Node, alpha: Any) -> fx.Node:
    """Return a node outside of the graph whose value is the operand times alpha."""
    graph = fx.Graph()
    made = graph.placeholder(f"{node.name}_scaled")
    dtype = torch.result_type(torch_value(operand), alpha)
    made.meta = {"val": torch.empty(torch_value(operand).shape, dtype=dtype, device="meta")}
    device = meeting_dtype(lowering, (operand,), dtype)
    product = elementwise(
        lowering, made, (operand,), (device,), lambda a: lowering.call("mul", a, _number(alpha, device))
    )
    lowering.put(made, product)
    return made


@lowers("add.Tensor add.Scalar", "fib", fuses=True)
def _add(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    if torch_value(node).dtype is torch.bool:
        return _on_booleans(lowering, node, "logical_or")
    other = _scaled(lowering, node, number_in(lowering, given["other"]), given["alpha"])
    return binary(lowering, node, given["self"], other, "add")


@lowers("sub.Tensor sub.Scalar", "fib")
def _sub(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    other = _scaled(lowering, node, number_in(lowering, given["other"]), given["alpha"])
    return binary(lowering, node, given["self"], other, "sub", "rsub")


@lowers("rsub.Scalar rsub.Tensor", "fib")
def _rsub(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    first = _scaled(lowering, node, given["self"], given["alpha"])
    return binary(lowering, node, given["other"], first, "sub", "rsub")


@lowers("mul.Tensor mul.Scalar", "fib")
def _mul(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    if torch_value(node).dtype is torch.bool:
        return _on_booleans(lowering, node, "logical_and")
    return binary(lowering, node, given["self"], given["other"], "mul")


def _on_booleans(lowering: Lowering, node: fx.Node, function: str) -> Result:
    given = arguments(node)
    if given.get("alpha", 1) != 1 or not all(isinstance(given[key], fx.Node) for key in ("self", "other")):
        refuse("argument", "a boolean is combined with a number, or scaled by alpha")
    return on_masks(lowering, node, (given["self"], given["other"]), function)


def on_masks(lowering: Lowering, node: fx.Node, operands: tuple[object, object], function: str) -> Result:
    """Lower an op on two boolean tensors."""
    return elementwise(
        lowering, node, operands, ("bfloat16", "bfloat16"), lambda a, b: lowering.call(function, a, b)
    )


@lowers("div.Tensor div.Scalar", "fib")
def _div(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    left, right = number_in(lowering, given["self"]), number_in(lowering, given["other"])
    if not isinstance(right, fx.Node):
        if right == 0:
            refuse("argument", "the divisor is 0")
        mantissa = math.frexp(float(right))[0]  # type: ignore[arg-type]  # a number
        if abs(mantissa) == 0.5:
            return binary(lowering, node, left, 1 / right, "mul")  # type: ignore[operator]  # exact
        return binary(lowering, node, left, right, "div")
    if not isinstance(left, fx.Node):
        refuse("argument", "a number is divided by a tensor")
    return binary(lowering, node, left, right, "div")


@lowers("maximum.default minimum.default", "fi")
def _extreme(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return binary(lowering, node, given["self"], given["other"], packet(node))


@lowers("atan2.default", "f")
def _atan2(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    dtype = lowering.device_dtype(node)
    return elementwise(
        lowering, node, (given["self"], given["other"]), (dtype, dtype),
        lambda a, b: lowering.call("atan2", a, b),
    )  # fmt: skip


@lowers("pow.Tensor_Scalar", "f")
def _power(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    exponent = given["exponent"]
    if not isinstance(exponent, (int, float)) or not math.isfinite(exponent):
        refuse("argument", f"the exponent is {exponent!r}")
    dtype = meeting_dtype(lowering, (given["self"],), torch_value(node).dtype)
    named = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent)

    def compute(a: Value) -> Value:
        if exponent == 1:
            return a
        if named:
            if node in lowering.in_float32 and named == "square" and a.dtype != "float32":
                return lowering.call("mul", a, a, dtype=Name("float32"))
            return lowering.call(named, a)
        if exponent == 3:
            return lowering.call("mul", lowering.call("square", a), a)
        if not float(exponent).is_integer() or exponent < 0:
            return lowering.call("pow", a, float(exponent))
        return lowering.call("pow", a, int(exponent))

    return elementwise(lowering, node, (given["self"],), (dtype,), compute)


@lowers("pow.Scalar", "f")
def _power_of_number(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    base = given["self"]
    if not isinstance(base, (int, float)) or not 0 < base < math.inf:
        refuse("argument", f"the base is {base!r}")
    dtype = meeting_dtype(lowering, (given["exponent"],), torch_value(node).dtype)
    return elementwise(
        lowering, node, (given["exponent"],), (dtype,), lambda a: lowering.call("rpow", a, float(base))
    )


@lowers("remainder.Scalar fmod.Scalar", "i")
def _modulo(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    """Lower remainders of integers only: the remainder of rounded floats can be anything."""
    if not isinstance(given["other"], int) or given["other"] <= 0:
        refuse("argument", f"the divisor is {given['other']!r}")
    return binary(lowering, node, given["self"], given["other"], packet(node))


@lowers("where.self", "fib")
def _where(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return choice(lowering, node, given["condition"], given["self"], given["other"])


@lowers("masked_fill.Scalar masked_fill.Tensor", "fib")
def _masked_fill(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return choice(lowering, node, given["mask"], given["value"], given["self"])


def choice(lowering: Lowering, node: fx.Node, condition: object, yes: object, no: object) -> Result:
    """Lower a selection between two operands by a mask."""
    if torch_value(condition).dtype is not torch.bool:
        refuse("dtype", "the condition is not boolean")
    yes, no = number_in(lowering, yes), number_in(lowering, no)
    if torch_value(node).dtype is torch.bool:
        yes, no = (item if isinstance(item, fx.Node) else bool(item) for item in (yes, no))
    dtype = meeting_dtype(lowering, (yes, no), torch_value(node).dtype)
    if any(isinstance(item, float) and math.isnan(item) for item in (yes, no)):
        refuse("argument", "the fill value is NaN")

    def compute(mask: Value, a: Any, b: Any) -> Value:
        first, second = (item if isinstance(item, Value) else _number(item, dtype) for item in (a, b))
        if not isinstance(first, Value) and not isinstance(second, Value):
            first = lowering.full(mask.shape, first, dtype)
        return lowering.call("where", mask, first, second)

    # If one operand is a number, the library needs the mask in the other operand's dtype.
    numbers = not (isinstance(yes, fx.Node) and isinstance(no, fx.Node))
    mask_dtype: Dtype = dtype if numbers else "bfloat16"
    return elementwise(lowering, node, (condition, yes, no), (mask_dtype, dtype, dtype), compute)

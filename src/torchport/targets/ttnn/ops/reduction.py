"""Lowers reductions, scans and softmax."""

from __future__ import annotations

import math

from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import (
    Formed,
    Lowering,
    Result,
    arguments,
    flat_shape,
    packet,
    positive,
    torch_value,
)
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers
from torchport.targets.ttnn.ttnn_program import Dtype


def _dims(given: object, rank: int) -> tuple[int, ...]:
    """Return the reduced dimensions in order; all of them if none are given."""
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return tuple(range(rank))
    items = [given] if isinstance(given, int) else list(given)  # type: ignore[call-overload]  # numbers
    return tuple(sorted(positive(item, rank) for item in items))


def reduced(lowering: Lowering, node: fx.Node, function: str, **more: object) -> Result:
    """Lower a reduction to a ttnn function."""
    given = arguments(node)
    source = given["self"]
    shape = tuple(torch_value(source).shape)
    dims = _dims(given.get("dim"), len(shape))
    keepdim = bool(given.get("keepdim", False))
    dtype: Dtype | None = "float32" if node in lowering.in_float32 else None
    if len(shape) >= 3 and dims == tuple(range(2, len(shape))) and lowering.only_last(source):
        return _of_pixels(lowering, node, function, shape, dtype, more)
    value = lowering.get(source, dtype)
    if not shape:
        refuse("shape", "a scalar is reduced")
    return lowering.call(function, value, dim=dims, keepdim=keepdim, **more)


def _of_pixels(
    lowering: Lowering,
    node: fx.Node,
    function: str,
    shape: tuple[int, ...],
    dtype: Dtype | None,
    more: dict[str, object],
) -> Result:
    """Reduce over all pixels of images with channels last."""
    value = lowering.get(node.args[0], dtype, form="last")
    value = lowering.reshaped(value, (shape[0], 1, math.prod(shape[2:]), shape[1]))
    value = lowering.call(function, value, dim=(2,), keepdim=True, **more)
    result = tuple(torch_value(node).shape)
    if len(result) == 2:
        return lowering.reshaped(value, result)
    return Formed(lowering.reshaped(value, flat_shape(result)), "last")


def _keeps_dtype(node: fx.Node) -> None:
    wanted = node.kwargs.get("dtype")
    if wanted not in (None, torch_value(node.args[0]).dtype):
        refuse("argument", "the result is requested in another dtype")


@lowers("sum.dim_IntList sum.default", "fi")
@lowers("mean.dim mean.default", "f")
def _total(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    _keeps_dtype(node)
    return reduced(lowering, node, packet(node))


@lowers("amax.default amin.default max.default min.default", "fi")
@lowers("any.default any.dim any.dims all.default all.dim", "b")
def _extreme(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return reduced(lowering, node, "max" if packet(node) in ("amax", "max", "any") else "min")


@lowers("var.correction", "f")
def _variance(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    correction = given["correction"]
    correction = 1 if correction is None else correction
    count = torch_value(node.args[0]).numel() // max(torch_value(node).numel(), 1)
    if correction not in (0, 1) or count <= correction:
        refuse("argument", f"the variance of {count} elements has the correction {correction!r}")
    return reduced(lowering, node, "var", correction=bool(correction))


@lowers("linalg_vector_norm.default", "f")
def _norm(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    if given["dtype"] is not None:
        refuse("argument", "the result is requested in another dtype")
    if given["ord"] not in (1, 2):
        refuse("argument", f"the order of the norm is {given['ord']!r}")
    shape = torch_value(given["self"]).shape
    if not shape:
        refuse("shape", "a scalar is reduced")
    value = lowering.get(given["self"])
    inner = lowering.call("abs" if given["ord"] == 1 else "square", value)
    dims = _dims(given["dim"], len(shape))
    total = lowering.call("sum", inner, dim=dims, keepdim=given["keepdim"])
    return total if given["ord"] == 1 else lowering.call("sqrt", total)


@lowers("cumsum.default", "fi")
def _cumsum(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    _keeps_dtype(node)
    rank = torch_value(node).dim()
    if rank == 0:
        refuse("shape", "the cumulative sum of a scalar is taken")
    return lowering.call("cumsum", lowering.get(given["self"]), positive(given["dim"], rank))


@lowers("argmax.default", "fi")
def _argmax(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    source = torch_value(given["self"])
    if source.is_floating_point() and lowering.held_dtype(given["self"]) != "float32":
        refuse("dtype", "in bfloat16, another element could be the largest", "use dtype=float32")
    rank = source.dim()
    if rank == 0:
        refuse("shape", "the argmax of a scalar is taken")
    value = lowering.get(given["self"])
    dim = given["dim"]
    if dim is None:
        value, dim = lowering.reshaped(value, (source.numel(),)), 0
    elif positive(dim, rank) != rank - 1:
        order = [place for place in range(rank) if place != positive(dim, rank)] + [positive(dim, rank)]
        value = lowering.permuted(value, order)
    value = lowering.laid_out(value, "row_major")
    found = lowering.call("argmax", value, dim=-1, keepdim=False)
    found = lowering.cast(lowering.laid_out(found, "tile"), "int32")
    return lowering.reshaped(found, tuple(torch_value(node).shape))


@lowers("_softmax.default", "f")
def _softmax(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    value, dim = _for_softmax(lowering, node)
    return lowering.precise("softmax", value, dim=dim, numeric_stable=True)


@lowers("_log_softmax.default", "f")
def _log_softmax(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    value, dim = _for_softmax(lowering, node)
    shifted = lowering.call("sub", value, lowering.call("max", value, dim=(dim,), keepdim=True))
    total = lowering.call("sum", lowering.call("exp", shifted), dim=(dim,), keepdim=True)
    return lowering.call("sub", shifted, lowering.call("log", total))


def _for_softmax(lowering: Lowering, node: fx.Node) -> tuple[Value, int]:
    given = arguments(node)
    if given["half_to_float"]:
        refuse("argument", "half_to_float is for devices with half precision")
    rank = torch_value(node).dim()
    return lowering.get(given["self"]), positive(given["dim"], rank)

"""Brings the operands of an elementwise op into one form, so that they broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.float32_values import MIXING, is_op
from torchport.targets.ttnn.lowering import Formed, Lowering, Result, flat_shape, torch_value
from torchport.targets.ttnn.ttnn_program import Dtype

Number = bool | int | float
Operand = Value | Number
Compute = Callable[..., Value]


def elementwise(
    lowering: Lowering,
    node: fx.Node,
    operands: Sequence[object],
    dtypes: Sequence[Dtype | None],
    compute: Compute,
) -> Result:
    """Lower an elementwise op in the form that its operands have.

    Args:
        lowering: the values of the graph's nodes.
        node: the op, for its shape.
        operands: its operands, nodes or numbers.
        dtypes: the dtype that each operand is cast to; unused for numbers.
        compute: adds the call, given the operands' values.
    """
    shape = tuple(torch_value(node).shape)
    nodes = [item for item in operands if isinstance(item, fx.Node)]
    if any(lowering.only_last(item) for item in nodes):
        placed = _placed_last(lowering, shape, operands, dtypes)
        if placed is not None:
            result = compute(*placed)
            return Formed(lowering.reshaped(result, flat_shape(shape)), "last")
    values = [
        lowering.get(item, dtype) if isinstance(item, fx.Node) else item
        for item, dtype in zip(operands, dtypes, strict=True)
    ]
    return compute(*values)


def _placed_last(
    lowering: Lowering, shape: tuple[int, ...], operands: Sequence[object], dtypes: Sequence[Dtype | None]
) -> list[object] | None:
    """Return the operands with channels last; None if one of them cannot be."""
    places: list[tuple[int, ...] | None] = []
    for item in operands:
        if isinstance(item, fx.Node):
            place = _place(tuple(torch_value(item).shape), shape)
            if place is None:
                return None
            places.append(place)
        else:
            places.append(None)
    # An operand with one number per image and channel needs the images in a separate dimension.
    apart = shape[0] > 1 and any(place and place[0] > 1 for place in places)
    whole = (shape[0], 1, math.prod(shape[2:]), shape[1]) if apart else flat_shape(shape)
    found: list[object] = []
    for item, place, dtype in zip(operands, places, dtypes, strict=True):
        if place is None:
            found.append(item)
        elif place == ():
            found.append(lowering.reshaped(lowering.get(item, dtype, form="last"), whole))
        else:
            found.append(lowering.reshaped(lowering.get(item, dtype), place))
    return found


def _place(shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape that broadcasts an operand against flattened images; () for one of full size."""
    if shape == whole:
        return ()
    if math.prod(shape) == 1:
        return (1, 1, 1, 1)
    full = (1,) * (len(whole) - len(shape)) + shape
    if any(size != 1 for size in full[2:]):
        return None
    return (full[0], 1, 1, full[1])


def number_in(lowering: Lowering, item: object) -> object:
    """Return a scalar weight as a Python number; other operands unchanged."""
    tensor = lowering.tensor_of(item)
    if tensor is not None and tensor.dim() == 0 and not tensor.is_meta:
        return tensor.item()
    return item


def common_dtype(operands: Sequence[object]) -> torch.dtype:
    """Return the dtype in which torch computes with these operands."""
    examples: list[torch.Tensor | Number] = [
        torch_value(item) if isinstance(item, fx.Node) else item  # type: ignore[misc]  # nodes and numbers
        for item in operands
    ]
    result = examples[0]
    dtype = result.dtype if isinstance(result, torch.Tensor) else torch.result_type(result, result)
    for item in examples[1:]:
        dtype = torch.result_type(result, item)
        result = (
            torch.empty((), dtype=dtype)
            if not isinstance(item, torch.Tensor)
            else item.new_empty(
                (1,) * max(item.dim(), result.dim() if isinstance(result, torch.Tensor) else 0), dtype=dtype
            )
        )
    return dtype


def meeting_dtype(lowering: Lowering, operands: Sequence[object], dtype: torch.dtype) -> Dtype:
    """Return the device dtype that operands are cast to, given the dtype in which torch computes.

    Integers converted to floats may need more bits than bfloat16 has; so do values computed from them, which
    stay in float32 until they are combined with a tensor in bfloat16.
    """
    device = lowering.dtype_for(dtype)
    if not dtype.is_floating_point or device == "float32":
        return device
    kinds = set()
    for item in operands:
        if not isinstance(item, fx.Node) or item.op == "get_attr":
            continue
        tensor = torch_value(item)
        if tensor.is_floating_point():
            kinds.add(lowering.held_dtype(item))
        elif tensor.dtype is not torch.bool:
            kinds.add(lowering.exact_float(item))
    return "float32" if kinds == {"float32"} else device


def mixed_dtypes(
    lowering: Lowering, node: fx.Node, operands: Sequence[object]
) -> tuple[tuple[Dtype | None, ...], Dtype]:
    """Return the device dtypes of a function's operands, which may differ, and of its result.

    The result is in float32 if the node is to be; or if all operands of its size are, so that statistics
    remain in float32 until they are combined with a tensor in bfloat16. Weights follow the other operands.
    """
    dtype = torch_value(node).dtype
    device = lowering.dtype_for(dtype)
    if not dtype.is_floating_point or device == "float32":
        return (device,) * len(operands), device
    held: list[Dtype | None] = []
    full: set[Dtype] = set()
    for item in operands:
        kind = _float_dtype(lowering, item)
        held.append(kind)
        if kind is not None and torch_value(item).numel() == torch_value(node).numel():
            full.add(device if _awaits_rounding(lowering, item) else kind)
    is_float32 = full == {"float32"} if full else "float32" in held
    result: Dtype = "float32" if is_float32 or node in lowering.in_float32 else device
    return tuple(result if kind is None else kind for kind in held), result


def _float_dtype(lowering: Lowering, item: object) -> Dtype | None:
    """Return the float dtype in which an operand is held; None for weights, numbers and booleans."""
    if not isinstance(item, fx.Node) or item.op == "get_attr" or torch_value(item).dtype is torch.bool:
        return None
    if torch_value(item).is_floating_point():
        return lowering.held_dtype(item)
    return lowering.exact_float(item)


def _awaits_rounding(lowering: Lowering, item: object) -> bool:
    """Whether an operand is in float32 only until the next op: an elementwise result, not a statistic."""
    return isinstance(item, fx.Node) and item in lowering.in_float32 and is_op(item, MIXING)

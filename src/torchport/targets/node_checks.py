"""Checks that apply to every op of a target: on its tensors, and on its integers."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator

import torch
from torch import fx

from torchport.records import Verdict
from torchport.structure import tensors_within
from torchport.targets.integer_bounds import Bounds, bounds_of
from torchport.targets.value_ranges import fits, index_limits
from torchport.torch_private import OpOverload

_DTYPE_REMEDY = "it stays on the host; cast the model to float32 if that precision is enough"


def tensors_of(node: fx.Node) -> Iterator[torch.Tensor]:
    """Yield the fake tensors that go into a node and come out of it."""
    for source in node.all_input_nodes:
        yield from tensors_within(source.meta.get("val"))
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        # Of several results only those that are used count; batch norm's others are empty.
        value = [value[user.args[1]] for user in node.users if user.target is operator.getitem]  # type: ignore[index]
    yield from tensors_within(value)


def is_random(node: fx.Node) -> bool:
    """Whether an op draws random numbers: run again, it gives others. Attention does for dropout only."""
    op = node.target
    if not isinstance(op, OpOverload) or torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    names = [argument.name for argument in op._schema.arguments]
    if "dropout_p" not in names:
        return True
    place = names.index("dropout_p")
    share = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", 0.0)
    return not (isinstance(share, (int, float)) and share == 0)


def check_tensors(node: fx.Node, dtypes: Collection[torch.dtype]) -> Verdict | None:
    """Reject tensors of other dtypes, sparse, empty or of unknown shape; the planner checks devices."""
    found = False
    for tensor in tensors_of(node):
        found = True
        if tensor.dtype not in dtypes:
            name = str(tensor.dtype).removeprefix("torch.")
            return Verdict(
                False, "dtype", f"{node.target} is not computed in {name} as torch does", _DTYPE_REMEDY
            )
        if tensor.layout is not torch.strided:
            return Verdict(False, "argument", f"a tensor has the layout {tensor.layout}")
        if any(not isinstance(size, int) for size in tensor.shape):
            return Verdict(False, "shape", "a shape is known only at run time")
        if tensor.numel() == 0:
            return Verdict(False, "shape", "a tensor is empty")
    if not found:
        return Verdict(False, "not_a_tensor", f"{node.target} has no tensors")
    return None


def check_integers(node: fx.Node, exact: Bounds) -> Verdict | None:
    """Reject an op if an integer might be inexact on the device, or an index out of bounds.

    Args:
        node: the op.
        exact: the range of integers that the device computes exactly.
    """
    for index, limits in index_limits(node):
        if not fits(bounds_of(index), limits):
            return Verdict(
                False, "integer_range",
                f"the index {index} could be outside {limits[0]} … {limits[1]}",
                "clamp the index",
            )  # fmt: skip
    integers = [item for item in (*node.all_input_nodes, node) if _is_wide_integer(item)]
    numbers = _scalars(node) if integers else []
    if not all(fits(bounds_of(item), exact) for item in (*integers, *numbers)):
        return Verdict(
            False, "integer_range",
            f"the device computes integers exactly up to {_power(exact[1])}, "
            "but those of this op could be larger",
            "use smaller integers, or compute this part outside the model",
        )  # fmt: skip
    return None


def _is_wide_integer(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32)


def _scalars(node: fx.Node) -> list[int]:
    """Return the integers that a node computes with, not those for dimensions, sizes or modes."""
    assert isinstance(node.target, OpOverload)
    arguments = zip(node.target._schema.arguments, node.args, strict=False)
    return [
        given
        for argument, given in arguments
        if isinstance(given, int) and ("number" in str(argument.type) or str(argument.type) == "Tensor")
    ]


def _power(number: int) -> str:
    """Return a number as the nearest power of two at or above it, in words."""
    return f"2**{number.bit_length() - (number.bit_count() == 1)}"

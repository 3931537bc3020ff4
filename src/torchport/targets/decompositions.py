"""torch's own decompositions, as data that targets choose from."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from torchport.torch_private import OpOverload, core_aten_decompositions, is_preservable_composite


@functools.cache
def core_decompositions() -> dict[OpOverload, Callable[..., object]]:
    """Return the decompositions to core ATen of all ops that are no composites.

    Random ops stay whole: taken apart, they would draw other numbers from torch's generator than
    eager torch does.
    """
    table = core_aten_decompositions()
    return {
        op: how
        for op, how in table.items()
        if isinstance(op, OpOverload) and torch.Tag.nondeterministic_seeded not in op.tags
    }


def is_composite(op: OpOverload) -> bool:
    """Whether torch takes an op apart by itself, unless it is told to keep it."""
    return bool(is_preservable_composite(op))


def find_op(name: str) -> OpOverload | None:
    """Return the op of a name such as `aten.linear.default`, if this torch has it."""
    space, packet, overload = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), packet), overload)  # type: ignore[no-any-return]
    except AttributeError:
        return None

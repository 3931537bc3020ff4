"""The cost of one op: floating-point operations, and bytes read and written. All costs are counted here."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from torch import fx

from torchport.analysis.bytes_moved import bytes_moved
from torchport.analysis.product_flops import product_flops
from torchport.analysis.vector_flops import vector_flops
from torchport.capture import OpCall, describe_call
from torchport.torch_private import HigherOrderOperator, OpOverload


@dataclass(frozen=True, slots=True)
class CallCost:
    """The cost of a call of an op.

    Args:
        flops: the floating-point operations of its matrix products, convolutions and attention.
        vector_flops: its other floating-point operations.
        read, written: the bytes that it reads and writes.
        known: whether its FLOPs are known; they are 0 if not.
    """

    flops: int
    vector_flops: int
    read: int
    written: int
    known: bool = True

    @classmethod
    def sum(cls, costs: Iterable[CallCost]) -> CallCost:
        """Return the total cost of several calls."""
        parts = [(cost.flops, cost.vector_flops, cost.read, cost.written) for cost in costs]
        flops, vector_flops, read, written = map(sum, zip(*parts, strict=True)) if parts else (0, 0, 0, 0)
        return cls(flops, vector_flops, read, written)


def cost_of(call: OpCall) -> CallCost:
    """Return the cost of a call.

    Example:
        >>> x = torch.ones(2, 3)
        >>> cost_of(describe_call(torch.ops.aten.mm.default, (x, x.T), {}, torch.ones(2, 2))).flops
        24
    """
    read, written = bytes_moved(call)
    if any(min(spec.shape, default=0) < 0 for _, spec in call.tensors()):
        return CallCost(0, 0, read, written, known=False)  # sizes known only at run time
    products = _products(call)
    if products is not None:
        return CallCost(products, 0, read, written)
    vector = vector_flops(call)
    return CallCost(0, vector or 0, read, written, vector is not None)


def _products(call: OpCall) -> int | None:
    try:
        return product_flops(call)
    except (KeyError, IndexError):
        return None  # an overload whose arguments differ from those in the op's formula


def flops_of(node: fx.Node) -> int:
    """Return the floating-point operations of a graph node's matrix products, convolutions and attention."""
    call = call_of(node)
    return 0 if call is None else cost_of(call).flops


def known_flops(node: fx.Node) -> int | None:
    """Return the floating-point operations of a graph's node like `flops_of`; None if they are unknown.

    A node that is not an op, such as taking one of several results, computes nothing.
    """
    call = call_of(node)
    if call is None:
        return None if isinstance(node.target, HigherOrderOperator) else 0
    cost = cost_of(call)
    return cost.flops if cost.known else None


def bytes_of(node: fx.Node) -> int:
    """Return the bytes that a graph's node reads and writes."""
    call = call_of(node)
    return 0 if call is None else sum(bytes_moved(call))


def call_of(node: fx.Node) -> OpCall | None:
    """Return the op call that a graph's node represents; None if it is not an op."""
    if not isinstance(node.target, OpOverload):
        return None
    values = functools.partial(fx.map_arg, fn=lambda source: source.meta.get("val"))
    args, kwargs = values(node.args), values(node.kwargs)
    assert isinstance(args, tuple)
    assert isinstance(kwargs, dict)
    return describe_call(node.target, args, kwargs, node.meta.get("val"))

"""What a node of an ATen graph costs: floating-point operations, and bytes read and written."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry


def flops_of(node: fx.Node) -> int:
    """Return the floating-point operations of a node; 0 for ops that torch counts none for."""
    if not isinstance(node.target, OpOverload):
        return 0
    composite = _COMPOSITES.get(str(node.target.overloadpacket))
    if composite is not None:
        return composite(node)
    count = flop_registry.get(node.target.overloadpacket)
    if count is None:
        return 0
    args = fx.map_arg(node.args, lambda source: source.meta.get("val"))
    kwargs = fx.map_arg(node.kwargs, lambda source: source.meta.get("val"))
    assert isinstance(kwargs, dict)
    try:
        return int(count(*args, **kwargs, out_val=node.meta.get("val")))
    except (TypeError, ValueError, AssertionError, IndexError, RuntimeError):
        return 0  # torch's formulas do not know every overload


def _shape(node: fx.Node, index: int) -> torch.Size:
    source = node.args[index]
    assert isinstance(source, fx.Node)
    shape = source.meta["val"].shape
    assert isinstance(shape, torch.Size)
    return shape


def _linear(node: fx.Node) -> int:
    """Two for each product and sum, of every row with every column of the weight."""
    return 2 * math.prod(_shape(node, 0)) * math.prod(_shape(node, 1)[:-1])


def _attention(node: fx.Node) -> int:
    """Two matrix products: queries with keys, and their scores with values."""
    query, key, value = (_shape(node, index) for index in range(3))
    scores = math.prod(query[:-1]) * key[-2]
    return 2 * scores * query[-1] + 2 * scores * value[-1]


# Ops that torch would take apart before it counts.
_COMPOSITES = {"aten.linear": _linear, "aten.scaled_dot_product_attention": _attention}


def bytes_of(node: fx.Node) -> int:
    """Return the bytes that a node reads and writes."""
    values = [source.meta.get("val") for source in node.all_input_nodes]
    return sum(_bytes(tensor) for value in (*values, node.meta.get("val")) for tensor in _tensors(value))


def _bytes(tensor: torch.Tensor) -> int:
    """Return a tensor's bytes; 0 where a size is known at run time only, or the layout is not dense."""
    if tensor.layout is not torch.strided or any(not isinstance(size, int) for size in tensor.shape):
        return 0
    return math.prod(tensor.shape) * tensor.element_size()


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)

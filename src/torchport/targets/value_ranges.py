"""Proves that integers fit: devices compute 64-bit integers in fewer bits, and index unchecked.

torch would give the wide result, or raise for an index that is out of bounds; a device would give a
wrong number. So every integer in the graph gets bounds. Integers that come from outside are assumed
to lie within some, and the assumption is checked on each call.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from torchport.torch_private import FakeTensor

Bounds = tuple[int, int]

# What is assumed of integers from outside. Ids, positions, masks and lengths lie far within; the
# room above is for the arithmetic that models do on them.
ASSUMED: Bounds = (-(2**22), 2**22)
_KEY = "torchport_range"
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def annotate(graph_module: fx.GraphModule, is_outside: Callable[[fx.Node], bool]) -> None:
    """Give every integer node its bounds.

    Args:
        graph_module: the whole graph; its weights are `get_attr` nodes.
        is_outside: whether a node's value surely comes from outside the device.
    """
    nodes = list(graph_module.graph.nodes)
    wanted = _wanted_of_inputs(nodes, is_outside)
    for node in nodes:
        if _is_integer(node):
            if is_outside(node):
                node.meta[_KEY] = wanted.get(node, ASSUMED)
            else:
                node.meta[_KEY] = _computed(graph_module, node)


def bounds_of(value: object) -> Bounds:
    """Return the bounds of a node or a number; those of int64 if nothing is known."""
    if isinstance(value, bool):
        return int(value), int(value)
    if isinstance(value, int):
        return value, value
    if isinstance(value, fx.Node):
        if _dtype(value) is torch.bool:
            return 0, 1
        found = value.meta.get(_KEY)
        if found is not None:
            return found  # type: ignore[no-any-return]
    return -(2**63), 2**63 - 1


def fits(bounds: Bounds, limits: Bounds) -> bool:
    """Whether bounds lie within limits."""
    return limits[0] <= bounds[0] and bounds[1] <= limits[1]


def input_ranges(graph_module: fx.GraphModule) -> dict[int, Bounds]:
    """Return, for an island, which inputs must be checked on each call, and against what."""
    found: dict[int, Bounds] = {}
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    for index, node in enumerate(placeholders):
        if _is_integer(node):
            found[index] = node.meta.get(_KEY, ASSUMED)
    return found


def index_limits(node: fx.Node) -> list[tuple[fx.Node, Bounds]]:
    """Return, for an op that indexes, its index tensors with the bounds that torch enforces."""
    name = str(node.target)
    args = node.args
    if _is_open(node):
        return []
    if name == "aten.embedding.default":
        return [(args[1], (0, _size(args[0], 0) - 1))]  # type: ignore[list-item]
    if name in ("aten.index_select.default", "aten.gather.default", "aten.scatter.src", "aten.scatter.value",
                "aten.scatter_add.default", "aten.index_add.default", "aten.index_copy.default",
                "aten.index_fill.int_Scalar", "aten.take_along_dim.default"):  # fmt: skip
        dim = args[1]
        if not isinstance(dim, int) or not isinstance(args[2], fx.Node):
            return []
        return [(args[2], (0, _size(args[0], dim) - 1))]
    if name in ("aten.index.Tensor", "aten.index_put.default", "aten._unsafe_index.Tensor"):
        indices = args[1]
        assert isinstance(indices, (list, tuple))
        limits = []
        for dim, index in enumerate(indices):
            if isinstance(index, fx.Node) and _is_integer(index):
                size = _size(args[0], dim)
                limits.append((index, (-size, size - 1)))
        return limits
    return []


def _wanted_of_inputs(nodes: list[fx.Node], is_outside: Callable[[fx.Node], bool]) -> dict[fx.Node, Bounds]:
    """Narrow the assumption on integers from outside to what the ops that index with them need."""
    wanted: dict[fx.Node, Bounds] = {}
    for node in nodes:
        for index, (low, high) in index_limits(node):
            origin = _through_views(index)
            if is_outside(origin) and _is_integer(origin):
                lower, upper = wanted.get(origin, ASSUMED)
                wanted[origin] = (max(low, lower), min(high, upper))
    return wanted


_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "_unsafe_view.default", "reshape.default", "expand.default", "permute.default",
        "transpose.int", "t.default", "unsqueeze.default", "squeeze.dim", "squeeze.dims", "squeeze.default",
        "slice.Tensor", "select.int", "clone.default", "alias.default", "detach.default", "roll.default",
        "contiguous.default", "flip.default", "repeat.default", "unfold.default", "narrow.int",
        "flatten.using_ints", "expand_as.default", "view_as.default", "lift_fresh_copy.default",
    )
)  # fmt: skip


def _through_views(node: fx.Node) -> fx.Node:
    while node.op == "call_function":
        name = str(node.target)
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or not _is_integer(source):
            return node
        if name not in _VIEWS and name != "aten._to_copy.default":
            return node
        node = source
    return node


def _computed(graph_module: fx.GraphModule, node: fx.Node) -> Bounds:
    if node.op == "get_attr":
        return _of_tensor(graph_module, node)
    if node.op != "call_function" or _is_open(node):
        return bounds_of(None)
    name = str(node.target)
    transfer = _TRANSFER.get(name) or (_same if name in _VIEWS else None)
    return transfer(node) if transfer is not None else bounds_of(None)


def _of_tensor(graph_module: fx.GraphModule, node: fx.Node) -> Bounds:
    assert isinstance(node.target, str)
    tensor = getattr(graph_module, node.target)
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        return ASSUMED  # a model without weights is explained, never built
    if tensor.numel() == 0:
        return 0, 0
    least, most = torch.aminmax(tensor)
    return int(least), int(most)


def _same(node: fx.Node) -> Bounds:
    return bounds_of(node.args[0])


def _union(*several: Bounds) -> Bounds:
    return min(low for low, _ in several), max(high for _, high in several)


def _of_list(node: fx.Node) -> Bounds:
    items = node.args[0]
    assert isinstance(items, (list, tuple))
    return _union(*[bounds_of(item) for item in items])


def _add(node: fx.Node) -> Bounds:
    left, right = bounds_of(node.args[0]), _scaled(bounds_of(node.args[1]), node)
    return left[0] + right[0], left[1] + right[1]


def _sub(node: fx.Node) -> Bounds:
    left, right = bounds_of(node.args[0]), _scaled(bounds_of(node.args[1]), node)
    return left[0] - right[1], left[1] - right[0]


def _rsub(node: fx.Node) -> Bounds:
    left, right = bounds_of(node.args[1]), _scaled(bounds_of(node.args[0]), node)
    return left[0] - right[1], left[1] - right[0]


def _scaled(bounds: Bounds, node: fx.Node) -> Bounds:
    alpha = node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)
    if not isinstance(alpha, int):
        return bounds_of(None)
    ends = (bounds[0] * alpha, bounds[1] * alpha)
    return min(ends), max(ends)


def _mul(node: fx.Node) -> Bounds:
    left, right = bounds_of(node.args[0]), bounds_of(node.args[1])
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


def _neg(node: fx.Node) -> Bounds:
    low, high = bounds_of(node.args[0])
    return -high, -low


def _abs(node: fx.Node) -> Bounds:
    low, high = bounds_of(node.args[0])
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _relu(node: fx.Node) -> Bounds:
    low, high = bounds_of(node.args[0])
    return max(low, 0), max(high, 0)


def _inverted(node: fx.Node) -> Bounds:
    low, high = bounds_of(node.args[0])
    return -1 - high, -1 - low


def _sum(node: fx.Node) -> Bounds:
    low, high = bounds_of(node.args[0])
    count = _count(node.args[0]) // max(_count(node), 1)
    return min(low * count, 0), max(high * count, 0)


def _cumsum(node: fx.Node) -> Bounds:
    low, high = bounds_of(node.args[0])
    dim = node.args[1]
    count = _size(node.args[0], dim) if isinstance(dim, int) and _val(node.args[0]).dim() else 1
    return min(low * count, low), max(high * count, high)


def _where(node: fx.Node) -> Bounds:
    return _union(bounds_of(node.args[1]), bounds_of(node.args[2]))


def _fill(node: fx.Node) -> Bounds:
    return _union(bounds_of(node.args[0]), bounds_of(node.args[2]))


def _clamp(node: fx.Node) -> Bounds:
    low, high = bounds_of(node.args[0])
    least = node.args[1] if len(node.args) > 1 else node.kwargs.get("min")
    most = node.args[2] if len(node.args) > 2 else node.kwargs.get("max")
    if isinstance(least, int):
        low, high = max(low, least), max(high, least)
    if isinstance(most, int):
        low, high = min(low, most), min(high, most)
    return low, high


def _minimum(node: fx.Node) -> Bounds:
    left, right = bounds_of(node.args[0]), bounds_of(node.args[1])
    return min(left[0], right[0]), min(left[1], right[1])


def _maximum(node: fx.Node) -> Bounds:
    left, right = bounds_of(node.args[0]), bounds_of(node.args[1])
    return max(left[0], right[0]), max(left[1], right[1])


def _to_copy(node: fx.Node) -> Bounds:
    source = node.args[0]
    if isinstance(source, fx.Node) and (_is_integer(source) or _dtype(source) is torch.bool):
        return bounds_of(source)
    return bounds_of(None)


def _full(node: fx.Node) -> Bounds:
    return bounds_of(node.args[1])


def _arange(node: fx.Node) -> Bounds:
    numbers = [item for item in node.args if isinstance(item, int)]
    return _union(*[bounds_of(item) for item in (*numbers, 0)])


def _position(node: fx.Node) -> Bounds:
    """An index that an op such as argmax returns."""
    dim = node.args[1] if len(node.args) > 1 else None
    count = _size(node.args[0], dim) if isinstance(dim, int) else _count(node.args[0])
    return 0, max(count - 1, 0)


def _remainder(node: fx.Node) -> Bounds:
    divisor = bounds_of(node.args[1])
    most = max(abs(divisor[0]), abs(divisor[1]))
    return -most, most


def _divided(node: fx.Node) -> Bounds:
    low, high = bounds_of(node.args[0])
    most = max(abs(low), abs(high))
    return -most, most


def _bits(node: fx.Node) -> Bounds:
    """Bitwise ops stay within the next power of two of their operands."""
    both = _union(bounds_of(node.args[0]), bounds_of(node.args[1]))
    room = 1 << max(abs(both[0]), abs(both[1])).bit_length()
    return (-room if both[0] < 0 else 0), room - 1


def _from_first(node: fx.Node) -> Bounds:
    return bounds_of(node.args[0])


def _scatter(node: fx.Node) -> Bounds:
    return _union(bounds_of(node.args[0]), bounds_of(node.args[3]))


_TRANSFER: dict[str, Callable[[fx.Node], Bounds]] = {
    "aten.add.Tensor": _add, "aten.add.Scalar": _add,
    "aten.sub.Tensor": _sub, "aten.sub.Scalar": _sub,
    "aten.rsub.Scalar": _rsub, "aten.rsub.Tensor": _rsub,
    "aten.mul.Tensor": _mul, "aten.mul.Scalar": _mul,
    "aten.neg.default": _neg, "aten.abs.default": _abs, "aten.relu.default": _relu,
    "aten.bitwise_not.default": _inverted,
    "aten.sum.default": _sum, "aten.sum.dim_IntList": _sum, "aten.cumsum.default": _cumsum,
    "aten.where.self": _where, "aten.masked_fill.Scalar": _fill, "aten.masked_fill.Tensor": _fill,
    "aten.clamp.default": _clamp, "aten.clamp_min.default": _clamp,
    "aten.minimum.default": _minimum, "aten.maximum.default": _maximum,
    "aten._to_copy.default": _to_copy,
    "aten.full.default": _full, "aten.full_like.default": _full,
    "aten.zeros_like.default": lambda node: (0, 0), "aten.ones_like.default": lambda node: (1, 1),
    "aten.zeros.default": lambda node: (0, 0), "aten.ones.default": lambda node: (1, 1),
    "aten.arange.start_step": _arange, "aten.arange.start": _arange, "aten.arange.default": _arange,
    "aten.argmax.default": _position, "aten.argmin.default": _position,
    "aten.remainder.Scalar": _remainder, "aten.fmod.Scalar": _remainder,
    "aten.floor_divide.default": _divided, "aten.div.Tensor_mode": _divided, "aten.div.Scalar_mode": _divided,
    "aten.bitwise_and.Tensor": _bits, "aten.bitwise_or.Tensor": _bits, "aten.bitwise_xor.Tensor": _bits,
    "aten.bitwise_and.Scalar": _bits, "aten.bitwise_or.Scalar": _bits,
    "aten.cat.default": _of_list, "aten.stack.default": _of_list,
    "aten.index.Tensor": _from_first, "aten._unsafe_index.Tensor": _from_first,
    "aten.index_select.default": _from_first, "aten.gather.default": _from_first,
    "aten.embedding.default": _from_first, "aten.take_along_dim.default": _from_first,
    "aten.amax.default": _from_first, "aten.amin.default": _from_first,
    "aten.max.default": _from_first, "aten.min.default": _from_first,
    "aten.tril.default": lambda node: _union(bounds_of(node.args[0]), (0, 0)),
    "aten.triu.default": lambda node: _union(bounds_of(node.args[0]), (0, 0)),
    "aten.constant_pad_nd.default": lambda node: _union(
        bounds_of(node.args[0]), bounds_of(node.args[2] if len(node.args) > 2 else 0)
    ),
    "aten.scatter.src": _scatter, "aten.scatter.value": _scatter,
    "aten.slice_scatter.default": lambda node: _union(bounds_of(node.args[0]), bounds_of(node.args[1])),
    "aten.select_scatter.default": lambda node: _union(bounds_of(node.args[0]), bounds_of(node.args[1])),
    "aten.index_put.default": lambda node: _union(bounds_of(node.args[0]), bounds_of(node.args[2])),
}  # fmt: skip


def _is_open(node: fx.Node) -> bool:
    """Whether a size that the node computes with is known only at run time."""
    values = [item.meta.get("val") for item in (*node.all_input_nodes, node)]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return any(not isinstance(size, int) for tensor in tensors for size in tensor.shape)


def _val(value: object) -> torch.Tensor:
    assert isinstance(value, fx.Node)
    tensor = value.meta["val"]
    assert isinstance(tensor, torch.Tensor)
    return tensor


def _dtype(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _is_integer(node: fx.Node) -> bool:
    return _dtype(node) in _INTEGERS


def _size(value: object, dim: int) -> int:
    tensor = _val(value)
    return int(tensor.shape[dim]) if tensor.dim() else 1


def _count(value: object) -> int:
    return int(_val(value).numel())

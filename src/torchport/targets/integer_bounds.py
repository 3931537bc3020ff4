"""Integer bounds per op: the bounds of its results, and the limits of its index tensors.

Each op is registered with `integers(…)` on the function that computes its bounds; `where` is in
`guarded_integers.py`. `value_ranges.py` propagates them through graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx

from torchport.targets.decompositions import full_names

Bounds = tuple[int, int]
BoundsOf = Callable[[fx.Node], Bounds]
Indexes = Callable[[fx.Node], "list[tuple[fx.Node, Bounds]]"]

UNKNOWN: Bounds = (-(2**63), 2**63 - 1)
RANGE_KEY = "torchport_range"  # key of the bounds in a node's metadata
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, slots=True)
class Integers:
    """The integer bounds of an op.

    Args:
        bounds: computes the bounds of its result, or of all its results.
        indexes: returns its index tensors, with the bounds within which torch and devices agree.
        is_view: whether its result has only elements of its first operand, all or some.
    """

    bounds: BoundsOf
    indexes: Indexes | None = None
    is_view: bool = False


INTEGERS: dict[str, Integers] = {}


def integers(
    names: str, indexes: Indexes | None = None, *, is_view: bool = False
) -> Callable[[BoundsOf], BoundsOf]:
    """Register the integer bounds of ops, written as `add.Tensor toy.op.default …`; see `Integers`.

    Raises:
        ValueError: an op is registered already.
    """

    def register(bounds: BoundsOf) -> BoundsOf:
        for name in full_names(names):
            if name in INTEGERS:
                raise ValueError(f"two rows for the integers of {name}")
            INTEGERS[name] = Integers(bounds, indexes, is_view)
        return bounds

    return register


def bounds_of(value: object) -> Bounds:
    """Return the bounds of a node or a number; those of int64 if they are unknown."""
    if isinstance(value, bool):
        return int(value), int(value)
    if isinstance(value, int):
        return value, value
    if isinstance(value, fx.Node):
        if _dtype(value) is torch.bool:
            return 0, 1
        found = value.meta.get(RANGE_KEY)
        if found is not None:
            return found  # type: ignore[no-any-return]
    return UNKNOWN


# Ops that move elements, look them up or choose among them


@integers(
    """
    view.default _unsafe_view.default reshape.default expand.default permute.default transpose.int t.default
    unsqueeze.default squeeze.dim squeeze.dims squeeze.default slice.Tensor select.int clone.default
    alias.default detach.default roll.default contiguous.default flip.default repeat.default unfold.default
    narrow.int flatten.using_ints expand_as.default view_as.default lift_fresh_copy.default
    """,
    is_view=True,
)
@integers("split.Tensor split_with_sizes.default unbind.int")
@integers("amax.default amin.default max.default min.default")
def of_first(node: fx.Node) -> Bounds:
    """Return the bounds of the first operand, whose elements the result has."""
    return bounds_of(node.args[0])


def _rows(node: fx.Node) -> list[tuple[fx.Node, Bounds]]:
    return [(node.args[1], (0, _size(node.args[0], 0) - 1))]  # type: ignore[list-item]


def _along(node: fx.Node) -> list[tuple[fx.Node, Bounds]]:
    source, dim, index = node.args[:3]
    if not isinstance(dim, int) or not isinstance(index, fx.Node):
        return []
    return [(index, (0, _size(source, dim) - 1))]


def _in_each(node: fx.Node) -> list[tuple[fx.Node, Bounds]]:
    """Return the limits of each index; with several, none may be negative: devices linearize them first."""
    source, indices = node.args[:2]
    assert isinstance(indices, (list, tuple))
    given = [(dim, index) for dim, index in enumerate(indices) if isinstance(index, fx.Node)]
    limits = []
    for dim, index in given:
        if is_integer(index):
            size = _size(source, dim)
            limits.append((index, (-size if len(given) == 1 else 0, size - 1)))
    return limits


integers("embedding.default", _rows)(of_first)
integers("index_select.default gather.default take_along_dim.default", _along)(of_first)
integers("index.Tensor _unsafe_index.Tensor", _in_each)(of_first)


def _union(*several: object) -> Bounds:
    """Return bounds that cover several nodes or numbers."""
    bounds = [bounds_of(item) for item in several]
    return min(low for low, _ in bounds), max(high for _, high in bounds)


@integers("cat.default stack.default")
def _of_list(node: fx.Node) -> Bounds:
    items = node.args[0]
    assert isinstance(items, (list, tuple))
    return _union(*items)


integers("masked_fill.Scalar masked_fill.Tensor")(lambda node: _union(node.args[0], node.args[2]))
integers("tril.default triu.default")(lambda node: _union(node.args[0], 0))
integers("slice_scatter.default select_scatter.default")(lambda node: _union(*node.args[:2]))
integers("scatter.src scatter.value", _along)(lambda node: _union(node.args[0], node.args[3]))
integers("index_put.default", _in_each)(lambda node: _union(node.args[0], node.args[2]))
# Their results are not bounded, but their indices are checked.
integers("scatter_add.default index_add.default index_copy.default index_fill.int_Scalar", _along)(
    lambda node: UNKNOWN
)


@integers("constant_pad_nd.default")
def _pad(node: fx.Node) -> Bounds:
    return _union(node.args[0], node.args[2] if len(node.args) > 2 else 0)


@integers("_to_copy.default", is_view=True)
def of_copied(node: fx.Node) -> Bounds:
    """Return the bounds of a copy in another dtype."""
    source = node.args[0]
    if isinstance(source, fx.Node) and (is_integer(source) or _dtype(source) is torch.bool):
        return bounds_of(source)
    return UNKNOWN


# Ops that create integers

integers("full.default full_like.default")(lambda node: bounds_of(node.args[1]))
integers("zeros_like.default zeros.default")(lambda node: (0, 0))
integers("ones_like.default ones.default")(lambda node: (1, 1))
integers("sign.default")(lambda node: (-1, 1))


@integers("arange.start_step arange.start arange.default")
def _arange(node: fx.Node) -> Bounds:
    numbers = [item for item in node.args if isinstance(item, int)]
    if len(numbers) < len(node.args):
        return UNKNOWN
    made = range(*numbers[:3])
    return _union(made[0], made[-1]) if made else (0, 0)


@integers("argmax.default argmin.default")
def _position(node: fx.Node) -> Bounds:
    dim = node.args[1] if len(node.args) > 1 else None
    count = _size(node.args[0], dim) if isinstance(dim, int) else _count(node.args[0])
    return 0, max(count - 1, 0)


# Arithmetic


def _scaled(node: fx.Node, place: int) -> Bounds:
    """Return the bounds of an operand times alpha."""
    alpha = node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)
    if not isinstance(alpha, int):
        return UNKNOWN
    ends = [end * alpha for end in bounds_of(node.args[place])]
    return min(ends), max(ends)


def _plus(left: Bounds, right: Bounds) -> Bounds:
    return left[0] + right[0], left[1] + right[1]


def _less(left: Bounds, right: Bounds) -> Bounds:
    return left[0] - right[1], left[1] - right[0]


integers("add.Tensor add.Scalar")(lambda node: _plus(bounds_of(node.args[0]), _scaled(node, 1)))
integers("sub.Tensor sub.Scalar")(lambda node: _less(bounds_of(node.args[0]), _scaled(node, 1)))
integers("rsub.Scalar rsub.Tensor")(lambda node: _less(bounds_of(node.args[1]), _scaled(node, 0)))


@integers("mul.Tensor mul.Scalar")
def _mul(node: fx.Node) -> Bounds:
    left, right = bounds_of(node.args[0]), bounds_of(node.args[1])
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


def _of_ends(compute: Callable[[int, int], Bounds]) -> BoundsOf:
    """Return the bounds of an op as a function of the limits of its first operand."""
    return lambda node: compute(*bounds_of(node.args[0]))


integers("neg.default")(_of_ends(lambda low, high: (-high, -low)))
integers("abs.default")(_of_ends(lambda low, high: (max(low, -high, 0), max(-low, high))))
integers("relu.default")(_of_ends(lambda low, high: (max(low, 0), max(high, 0))))
integers("bitwise_not.default")(_of_ends(lambda low, high: (-1 - high, -1 - low)))
integers("floor_divide.default div.Tensor_mode div.Scalar_mode")(
    _of_ends(lambda low, high: (-max(-low, high), max(-low, high)))
)


@integers("sum.default sum.dim_IntList")
def _sum(node: fx.Node) -> Bounds:
    low, high = bounds_of(node.args[0])
    count = _count(node.args[0]) // max(_count(node), 1)
    return min(low * count, 0), max(high * count, 0)


@integers("cumsum.default")
def _cumsum(node: fx.Node) -> Bounds:
    low, high = bounds_of(node.args[0])
    dim = node.args[1]
    count = _size(node.args[0], dim) if isinstance(dim, int) and _val(node.args[0]).dim() else 1
    return min(low * count, low), max(high * count, high)


@integers("clamp.default clamp_min.default")
def _clamp(node: fx.Node) -> Bounds:
    least = node.args[1] if len(node.args) > 1 else node.kwargs.get("min")
    most = node.args[2] if len(node.args) > 2 else node.kwargs.get("max")
    return _limited(bounds_of(node.args[0]), least, most)


def _limited(bounds: Bounds, least: object, most: object) -> Bounds:
    low, high = bounds
    if isinstance(least, int):
        low, high = max(low, least), max(high, least)
    if isinstance(most, int):
        low, high = min(low, most), min(high, most)
    return low, high


integers("clamp_max.default")(lambda node: _limited(bounds_of(node.args[0]), None, node.args[1]))


def _of_pairs(compute: Callable[[int, int], int]) -> BoundsOf:
    """Return the bounds of an op by combining its two operands' lower limits, and their upper limits."""

    def bounds(node: fx.Node) -> Bounds:
        left, right = bounds_of(node.args[0]), bounds_of(node.args[1])
        return compute(left[0], right[0]), compute(left[1], right[1])

    return bounds


integers("minimum.default")(_of_pairs(min))
integers("maximum.default")(_of_pairs(max))


@integers("remainder.Scalar fmod.Scalar")
def _remainder(node: fx.Node) -> Bounds:
    divisor = bounds_of(node.args[1])
    most = max(abs(divisor[0]), abs(divisor[1]))
    if divisor[0] > 0 and ("remainder" in str(node.target) or bounds_of(node.args[0])[0] >= 0):
        return 0, most - 1
    return -most, most


@integers("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_and.Scalar bitwise_or.Scalar")
def _bits(node: fx.Node) -> Bounds:
    """Return the next power of two of the operands, which bitwise ops stay within."""
    both = _union(*node.args[:2])
    room = 1 << max(abs(both[0]), abs(both[1])).bit_length()
    return (-room if both[0] < 0 else 0), room - 1


def _val(value: object) -> torch.Tensor:
    assert isinstance(value, fx.Node)
    tensor = value.meta["val"]
    assert isinstance(tensor, torch.Tensor)
    return tensor


def _dtype(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def is_integer(node: fx.Node) -> bool:
    """Whether a node is a tensor of integers."""
    return _dtype(node) in _INTEGERS


def _size(value: object, dim: int) -> int:
    tensor = _val(value)
    return int(tensor.shape[dim]) if tensor.dim() else 1


def _count(value: object) -> int:
    return int(_val(value).numel())

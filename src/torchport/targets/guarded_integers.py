"""Bounds of integers that are used only where a comparison holds, such as buckets of distant positions.

`where(x < 16, x, 16 + log(x / 16).to(int64))` also computes the logarithm of 0, and discards it. So the
bounds of a value that is computed from `x` and used nowhere else are those where it is selected.
"""

from __future__ import annotations

import torch
from torch import fx

from torchport.targets.integer_bounds import (
    INTEGERS,
    UNKNOWN,
    Bounds,
    bounds_of,
    integers,
    is_integer,
    of_first,
)
from torchport.torch_private import OpOverload

_MOST_VALUES = 2**24  # to evaluate a function on: some tens of milliseconds
# Devices round floats, at worst to bfloat16: a truncated value may be off by one plus a relative error.
_ROUNDING = 2**-4
_MAKERS = ("zeros_like", "ones_like", "full_like")  # they do not read the elements of their operand


@integers("where.self")
def _chosen(node: fx.Node) -> Bounds:
    """Return bounds that cover both branches, each limited to where the condition selects it."""
    condition, *branches = node.args[:3]
    found = [
        _within(bounds_of(branch), _limits(condition, branch, holds))
        for branch, holds in zip(branches, (True, False), strict=True)
    ]
    return min(low for low, _ in found), max(high for _, high in found)


def of_truncated(node: fx.Node) -> Bounds:
    """Return the bounds of integers truncated from floats that are computed elementwise from integers."""
    chain = _chain(node)
    if chain is None:
        return UNKNOWN
    origin, ops, in_place = chain
    low, high = _within(bounds_of(origin), _guard(node, origin) if in_place else UNKNOWN)
    if low > high or high - low >= _MOST_VALUES:
        return UNKNOWN
    values = torch.arange(low, high + 1, device="cpu")  # regardless of the default device
    for op in ops:
        assert isinstance(op.target, OpOverload)
        args = [values if isinstance(arg, fx.Node) else arg for arg in op.args]
        values = op.target(*args, **_without_device(op))
    least, most = float(values.min()), float(values.max())
    room = 1 + _ROUNDING * max(abs(least), abs(most))
    if not room < UNKNOWN[1]:  # infinite, too large, or NaN
        return UNKNOWN
    return int(least - room), int(most + room)


def _chain(node: fx.Node) -> tuple[fx.Node, list[fx.Node], bool] | None:
    """Return the integer that a float is computed from, the ops, and whether elements keep their places."""
    ops: list[fx.Node] = []
    in_place = True
    source = node.args[0]
    while isinstance(source, fx.Node) and not is_integer(source):
        if _moves_elements(source):
            in_place = False
            source = source.args[0]
            continue
        if not _is_elementwise(source) or len(source.all_input_nodes) != 1:
            return None
        ops.insert(0, source)
        [source] = source.all_input_nodes
    if not isinstance(source, fx.Node) or not ops:
        return None
    return source, ops, in_place and all(_alike(each, node) for each in (source, *ops))


def _moves_elements(node: fx.Node) -> bool:
    """Whether an op only moves elements of its first operand."""
    known = INTEGERS.get(str(node.target))
    return (known is not None and known.bounds is of_first) or _name(node).startswith("upsample_nearest")


def _guard(node: fx.Node, origin: fx.Node) -> Bounds:
    """Return the bounds that the origin has wherever a node that is computed from it is used."""
    while _alike(node, origin):
        users = [user for user in node.users if _name(user) not in _MAKERS]
        if len(users) != 1:
            return UNKNOWN
        [user] = users
        if _name(user) == "where":
            branches = list(user.args[1:3])
            if user.args[0] is node or branches.count(node) != 1 or not _alike(user, origin):
                return UNKNOWN
            return _limits(user.args[0], origin, branches.index(node) == 0)
        if not _is_elementwise(user) or not is_integer(user):
            return UNKNOWN
        node = user
    return UNKNOWN


def _limits(condition: object, compared: object, holds: bool) -> Bounds:
    """Return the bounds that a compared integer has where a condition holds, or where it does not."""
    if not isinstance(condition, fx.Node) or not isinstance(compared, fx.Node):
        return UNKNOWN
    if (
        condition.op != "call_function"
        or condition.args[:1] != (compared,)
        or not _alike(condition, compared)
    ):
        return UNKNOWN
    number = condition.args[1] if len(condition.args) > 1 else None
    if not is_integer(compared) or type(number) is not int:
        return UNKNOWN
    name = _name(condition)
    below = {"lt": number - 1, "le": number, "ge": number - 1, "gt": number}.get(name)
    if below is None:
        return UNKNOWN
    return (UNKNOWN[0], below) if (name in ("lt", "le")) is holds else (below + 1, UNKNOWN[1])


def _within(bounds: Bounds, limits: Bounds) -> Bounds:
    low, high = max(bounds[0], limits[0]), min(bounds[1], limits[1])
    return (low, high) if low <= high else bounds  # never chosen


def _name(node: fx.Node) -> str:
    is_aten = isinstance(node.target, OpOverload) and str(node.target).startswith("aten.")
    return str(node.target).split(".")[1] if is_aten else ""


def _is_elementwise(node: fx.Node) -> bool:
    tags = node.target.tags if isinstance(node.target, OpOverload) else []
    is_random = torch.Tag.nondeterministic_seeded in tags
    return str(node.target) == "aten._to_copy.default" or (torch.Tag.pointwise in tags and not is_random)


def _alike(node: fx.Node, other: fx.Node) -> bool:
    """Whether two nodes have the same shape, so that their elements correspond."""
    values = [each.meta.get("val") for each in (node, other)]
    shapes = [each.shape for each in values if isinstance(each, torch.Tensor)]
    return len(shapes) == 2 and shapes[0] == shapes[1]


def _without_device(node: fx.Node) -> dict[str, object]:
    return {name: value for name, value in node.kwargs.items() if name not in ("device", "pin_memory")}

"""Lowers ops that move elements without changing them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import (
    Formed,
    Lowering,
    Result,
    arguments,
    finite_in,
    flat_shape,
    is_wasteful,
    positive,
    torch_value,
)
from torchport.targets.ttnn.ops.copying import same
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers


@lowers("view.default _unsafe_view.default reshape.default", "fib")
def _view(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    source = node.args[0]
    old, new = tuple(torch_value(source).shape), tuple(torch_value(node).shape)
    if lowering.only_last(source):
        if len(new) >= 2 and new[:2] == old[:2]:
            if len(new) == 2:  # single pixels
                return lowering.reshaped(lowering.get(source, form="last"), new)
            return Formed(lowering.get(source, form="last"), "last")
        if len(new) == 2 and new[0] == old[0] and all(size == 1 for size in old[2:]):
            return lowering.reshaped(lowering.get(source, form="last"), new)
    return lowering.reshaped(lowering.get(source), new)


@lowers("unsqueeze.default squeeze.dim squeeze.dims squeeze.default", "fib")
def _thinner(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    return lowering.reshaped(lowering.get(node.args[0]), tuple(torch_value(node).shape))


@lowers("permute.default", "fib")
def _permute(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    rank = torch_value(node).dim()
    return permuted(lowering, node, [positive(dim, rank) for dim in given["dims"]])


@lowers("transpose.int t.default", "fib")
def _transpose(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    rank = torch_value(node).dim()
    order = list(range(rank))
    if rank > 1:
        first, second = positive(given.get("dim0", 0), rank), positive(given.get("dim1", 1), rank)
        order[first], order[second] = order[second], order[first]
    return permuted(lowering, node, order)


def permuted(lowering: Lowering, node: fx.Node, order: list[int]) -> Result:
    """Lower a permutation of dimensions; one between channels first and last needs no data movement yet."""
    source, rank = node.args[0], len(order)
    shape = tuple(torch_value(node).shape)
    if rank >= 3 and order == [0, *range(2, rank), 1] and lowering.only_last(source):
        return lowering.reshaped(lowering.get(source, form="last"), shape)
    if rank >= 3 and order == [0, rank - 1, *range(1, rank - 1)] and not lowering.only_last(source):
        return Formed(lowering.reshaped(lowering.get(source), flat_shape(shape)), "last")
    return lowering.permuted(lowering.get(source), order)


@lowers("expand.default", "fib")
def _expand(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    source = node.args[0]
    old, new = tuple(torch_value(source).shape), tuple(torch_value(node).shape)
    if old == new:
        return same(lowering, node, source)
    value = lowering.reshaped(lowering.get(source), (1,) * (len(new) - len(old)) + old)
    return value if value.shape == new else lowering.call("expand", value, new)


@lowers("repeat.default", "fib")
def _repeat(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    source, repeats = node.args[0], tuple(given["repeats"])
    old = tuple(torch_value(source).shape)
    value = lowering.reshaped(lowering.get(source), (1,) * (len(repeats) - len(old)) + old)
    return value if all(count == 1 for count in repeats) else lowering.call("repeat", value, repeats)


@lowers("slice.Tensor", "fib")
def _slice(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    shape = torch_value(given["self"]).shape
    dim = positive(given["dim"], len(shape))
    start, end, _ = slice(given["start"], given["end"]).indices(shape[dim])
    step = given["step"]
    if dim == 1 and lowering.only_last(given["self"]):
        return Formed(_cut_last(lowering, given["self"], start, end, step), "last")
    return cut(lowering, lowering.get(given["self"]), dim, start, end, step)


@lowers("select.int", "fib")
def _select(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    shape = torch_value(given["self"]).shape
    dim = positive(given["dim"], len(shape))
    index = given["index"] % shape[dim]
    part = cut(lowering, lowering.get(given["self"]), dim, index, index + 1)
    return lowering.reshaped(part, tuple(torch_value(node).shape))


@lowers("split.Tensor", "fib")
def _split(lowering: Lowering, node: fx.Node, given: Given) -> list[Result | None]:
    size = torch_value(given["self"]).shape[given["dim"]]
    step = given["split_size"]
    if not step:
        refuse("argument", "the split size is 0")
    return _parts(lowering, node, [min(step, size - start) for start in range(0, size, step)])


@lowers("split_with_sizes.default", "fib")
def _split_with_sizes(lowering: Lowering, node: fx.Node, given: Given) -> list[Result | None]:
    return _parts(lowering, node, list(given["split_sizes"]))


@lowers("unbind.int", "fib")
def _unbind(lowering: Lowering, node: fx.Node, given: Given) -> list[Result | None]:
    shape = torch_value(node.args[0]).shape
    dim = positive(given["dim"], len(shape))
    parts = _parts(lowering, node, [1] * shape[dim])
    thin = [*shape[:dim], *shape[dim + 1 :]]
    return [part and lowering.reshaped(part, thin) for part in parts]  # type: ignore[arg-type]  # all plain


def _parts(lowering: Lowering, node: fx.Node, sizes: Sequence[int]) -> list[Result | None]:
    given = arguments(node)
    source = given["self"]
    dim = positive(given["dim"], torch_value(source).dim())
    last = dim == 1 and lowering.only_last(source) and "unbind" not in str(node.target)
    wanted = {user.args[1] for user in node.users}
    found: list[Result | None] = []
    start = 0
    for place, size in enumerate(sizes):
        if place not in wanted and wanted:
            found.append(None)
        elif last:
            found.append(Formed(_cut_last(lowering, source, start, start + size), "last"))
        else:
            found.append(cut(lowering, lowering.get(source), dim, start, start + size))
        start += size
    return found


@lowers("cat.default", "fib")
def _cat(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    tensors = list(given["tensors"])
    rank = torch_value(node).dim()
    dim = positive(given["dim"], rank)
    if any(torch_value(item).dim() != rank for item in tensors):
        refuse("shape", "tensors of different ranks are concatenated")
    dtype = lowering.device_dtype(node)
    if len(tensors) == 1:
        return same(lowering, node, tensors[0])
    if dim == 1 and rank >= 3 and any(lowering.only_last(item) for item in tensors):
        parts = [lowering.get(item, dtype, form="last") for item in tensors]
        return Formed(lowering.call("concat", parts, dim=3), "last")
    return lowering.call("concat", [lowering.get(item, dtype) for item in tensors], dim=dim)


@lowers("constant_pad_nd.default", "fib")
def _pad(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    """Crop where an amount is negative, then pad."""
    shape = torch_value(given["self"]).shape
    amounts = list(given["pad"])
    if not any(amounts):
        return same(lowering, node, given["self"])
    pairs = [(amounts[place], amounts[place + 1]) for place in range(0, len(amounts), 2)]
    wanted = [(0, 0)] * (len(shape) - len(pairs)) + pairs[::-1]
    padding = [(max(before, 0), max(after, 0)) for before, after in wanted]
    front = any(before for before, _ in padding)
    if min(amounts) >= 0:
        source = lowering.get(given["self"], layout="row_major" if front else "tile")
    else:
        source = lowering.get(given["self"])
        for dim, (before, after) in enumerate(wanted):
            source = cut(lowering, source, dim, max(-before, 0), shape[dim] - max(-after, 0))
        if not any(map(any, padding)):
            return source
        source = lowering.laid_out(source, "row_major" if front else "tile")
    value = bool(given["value"]) if torch_value(node).dtype is torch.bool else given["value"]
    number = int(value) if source.dtype == "int32" else finite_in(float(value), source.dtype)
    return lowering.laid_out(lowering.call("pad", source, tuple(padding), number), "tile")


@lowers("slice_scatter.default", "fib")
def _slice_scatter(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    """Concatenate what precedes the slice, the slice's new content, and what follows it."""
    shape = torch_value(node).shape
    dim = positive(given["dim"], len(shape))
    start, end = slice(given["start"], given["end"]).indices(shape[dim])[:2]
    if given["step"] != 1:
        refuse("argument", "every n-th element is overwritten")
    return _overwritten(
        lowering, node, dim, start, end, lowering.get(given["src"], lowering.device_dtype(node))
    )


@lowers("select_scatter.default", "fib")
def _select_scatter(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    shape = list(torch_value(node).shape)
    dim = positive(given["dim"], len(shape))
    index = given["index"] % shape[dim]
    source = lowering.get(given["src"], lowering.device_dtype(node))
    source = lowering.reshaped(source, [*shape[:dim], 1, *shape[dim + 1 :]])
    return _overwritten(lowering, node, dim, index, index + 1, source)


def _overwritten(lowering: Lowering, node: fx.Node, dim: int, start: int, end: int, new: Value) -> Value:
    size = torch_value(node).shape[dim]
    if start >= end:
        return lowering.get(node.args[0])
    old = None if (start, end) == (0, size) else lowering.get(node.args[0])
    parts = [new]
    if old is not None and start > 0:
        parts.insert(0, cut(lowering, old, dim, 0, start))
    if old is not None and end < size:
        parts.append(cut(lowering, old, dim, end, size))
    return parts[0] if len(parts) == 1 else lowering.call("concat", parts, dim=dim)


def cut(lowering: Lowering, value: Value, dim: int, start: int, end: int, step: int = 1) -> Value:
    """Return a slice along one dimension."""
    if start >= end:
        refuse("shape", "a tensor is empty")
    size = value.shape[dim]
    if (start, end, step) == (0, size, 1):
        return value
    if is_wasteful(value.shape) and size != 1:
        kept = [place for place, extent in enumerate(value.shape) if extent != 1]
        thin = lowering.reshaped(value, [value.shape[place] for place in kept])
        shape = list(value.shape)
        shape[dim] = len(range(start, end, step))
        return lowering.reshaped(cut(lowering, thin, kept.index(dim), start, end, step), shape)
    low, high = [0] * len(value.shape), list(value.shape)
    low[dim], high[dim] = start, end
    if step == 1:
        return lowering.call("slice", value, low, high)
    steps = [1] * len(value.shape)
    steps[dim] = step
    return lowering.call("slice", value, low, high, steps)


def _cut_last(lowering: Lowering, node: object, start: int, end: int, step: int = 1) -> Value:
    """Return some channels of a value in the form with channels last."""
    return cut(lowering, lowering.get(node, form="last"), 3, start, end, step)

"""Lowers indexing. Indices are proved to be in bounds, or checked before a program runs."""

from __future__ import annotations

import math

import torch
from torch import fx

from torchport.targets.integer_bounds import bounds_of
from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import TILE_LAYOUT, Lowering, Result, arguments, positive, torch_value
from torchport.targets.ttnn.ops.matrix import is_weight
from torchport.targets.ttnn.ops.resampling import by_matrices
from torchport.targets.ttnn.ops.shaping import cut
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers

_MOST_RUNS = 8  # an index made of more runs is not lowered to slices


@lowers("embedding.default", "fi")
def _embedding(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    table, indices = given["weight"], given["indices"]
    if not torch_value(table).is_floating_point():
        refuse("dtype", "the embedding table does not hold floats")
    rows = _row_numbers(lowering, indices)
    shape = tuple(torch_value(node).shape)
    if lowering.device_dtype(node) == "float32":
        return lowering.reshaped(_in_three_parts(lowering, table, rows), shape)
    if is_weight(table):
        value = lowering.weight(table, layout="row_major", dtype="bfloat16")
    else:
        value = lowering.get(table, "bfloat16", layout="row_major")
    return lowering.reshaped(lowering.call("embedding", rows, value, layout=TILE_LAYOUT), shape)


def _row_numbers(lowering: Lowering, indices: fx.Node, size: int = 0) -> Value:
    """Return indices in the form that row lookups take: unsigned, with one or two dimensions."""
    shape = tuple(torch_value(indices).shape)
    flat = shape if len(shape) in (1, 2) else (math.prod(shape),)
    if is_weight(indices):
        return lowering.weight(
            indices, lambda tensor: _counted_from_front(tensor, size).reshape(flat), ("rows", flat, size),
            dtype="uint32", layout="row_major",
        )  # fmt: skip
    value = lowering.reshaped(_not_negative(lowering, indices, size), flat)
    return lowering.laid_out(lowering.cast(value, "uint32"), "row_major")


def _counted_from_front(tensor: torch.Tensor, size: int) -> torch.Tensor:
    return torch.where(tensor < 0, tensor + size, tensor)


def _not_negative(lowering: Lowering, indices: fx.Node, size: int) -> Value:
    value = lowering.get(indices, "int32")
    if bounds_of(indices)[0] >= 0 or not size:
        return value
    behind = lowering.cast(lowering.call("lt", value, 0), "int32")
    return lowering.call("add", value, lowering.call("mul", behind, size))


def _in_three_parts(lowering: Lowering, table: fx.Node, rows: Value) -> Value:
    """Look up float32 rows in three bfloat16 tables that sum exactly to the original table."""
    if not is_weight(table):
        refuse("argument", "an embedding table in float32 is computed in the model")

    def part(number: int) -> Value:
        def compute(tensor: torch.Tensor) -> torch.Tensor:
            rest = tensor.float()
            for _ in range(number):
                rest = torch.where(rest.isinf(), 0.0, rest - _nearest(rest))  # ±inf is in the first part only
            return _nearest(rest)

        values = lowering.weight(table, compute, ("part", number), dtype="bfloat16", layout="row_major")
        return lowering.cast(lowering.call("embedding", rows, values, layout=TILE_LAYOUT), "float32")

    # The small parts first: the others' sum, which is rounded away from 0, could overflow.
    return lowering.call("add", part(0), lowering.call("add", part(1), part(2)))


def _nearest(tensor: torch.Tensor) -> torch.Tensor:
    """Return floats rounded to bfloat16; those that are finite stay finite."""
    rounded = tensor.to(torch.bfloat16).float()
    most = torch.finfo(torch.bfloat16).max
    return torch.where(tensor.isinf(), rounded, rounded.clamp(-most, most))


@lowers("gather.default", "fib")
def _gather(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    rank = torch_value(node).dim()
    if rank == 0 or torch_value(given["self"]).dim() != rank:
        refuse("shape", "the indexed tensor is a scalar, or has another rank than the result")
    index = lowering.get(given["index"], "uint32")
    return lowering.call("gather", lowering.get(given["self"]), positive(given["dim"], rank), index=index)


@lowers("index_select.default", "fib")
def _index_select(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    rank = torch_value(node).dim()
    if rank == 0 or torch_value(given["index"]).dim() != 1:
        refuse("shape", "the indexed tensor or the index is a scalar")
    return _along(lowering, node, given["self"], positive(given["dim"], rank), given["index"])


def _looks_up_pixels(node: fx.Node) -> bool:
    indices = list(arguments(node)["indices"])
    return indices[:1] == [None] and sum(item is not None for item in indices) > 1


@lowers("index.Tensor _unsafe_index.Tensor", "fib", by_matrices=_looks_up_pixels)
def _index(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    indices = list(given["indices"])
    places = [place for place, item in enumerate(indices) if item is not None]
    found = [indices[place] for place in places]
    if any(torch_value(item).dtype == torch.bool for item in found):
        refuse("argument", "a mask is used as index: the result's shape depends on it")
    if places != list(range(places[0], places[0] + len(places))):
        refuse("argument", "the indexed dimensions are not adjacent")
    if len(places) == 1:
        return _along(lowering, node, given["self"], places[0], found[0])
    if places[0] != 0 and torch_value(node).is_floating_point():
        return by_matrices(lowering, given["self"], *_pixels(lowering, given["self"], places, found))
    return _several(lowering, node, given["self"], places[0], found)


@lowers("index_put.default", "fi", by_matrices=lambda node: True)
def _index_put(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    """Lower adding to pixels by their rows and columns: the gradient of looking them up."""
    indices = list(given["indices"])
    places = [place for place, item in enumerate(indices) if item is not None]
    if not given["accumulate"] or not torch_value(node).is_floating_point():
        refuse("argument", "elements are overwritten by index, or are not floats")
    if torch_value(given["values"]).dim() != torch_value(node).dim():
        refuse("shape", "the added values are broadcast")
    found = [indices[place] for place in places]
    rows, columns, numbers = _pixels(lowering, given["self"], places, found)
    added = by_matrices(
        lowering, given["values"], rows.t().contiguous(), columns.t().contiguous(), f"added {numbers}"
    )
    return lowering.call("add", lowering.get(given["self"]), added)


def _pixels(
    lowering: Lowering, source: fx.Node, places: list[int], indices: list[fx.Node]
) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Return the looked-up rows and columns as one-hot matrices, and their numbers as a string."""
    shape = torch_value(source).shape
    tensors = [lowering.tensor_of(index) for index in indices]
    if len(shape) != 4 or places != [2, 3] or any(tensor is None or tensor.is_meta for tensor in tensors):
        refuse("argument", "several dimensions after the first are indexed at once")
    rows, columns = tensors
    assert rows is not None
    assert columns is not None
    if torch.bool in (rows.dtype, columns.dtype):
        refuse("argument", "a mask is used as index: the result's shape depends on it")
    if rows.dim() != 2 or rows.shape[1] != 1 or columns.dim() > 2 or columns.numel() != columns.shape[-1]:
        refuse("argument", "single pixels are looked up instead of whole rows and columns")
    numbers = [rows.flatten(), columns.flatten()]
    if any(
        each.numel() == 0 or each.min() < 0 or each.max() >= size
        for each, size in zip(numbers, shape[2:], strict=True)
    ):
        refuse("argument", "an index is out of range")
    down, across = [
        torch.nn.functional.one_hot(each.long(), size).float()
        for each, size in zip(numbers, shape[2:], strict=True)
    ]
    return down, across, str([each.tolist() for each in numbers])


def _along(lowering: Lowering, node: fx.Node, source: fx.Node, dim: int, index: fx.Node) -> Value:
    """Lower a lookup along one dimension."""
    size = torch_value(source).shape[dim]
    runs = _runs(lowering.tensor_of(index), size)
    if runs is not None and torch_value(index).dim() == 1:
        value = lowering.get(source)
        parts = [cut(lowering, value, dim, start, end) for start, end in runs]
        return parts[0] if len(parts) == 1 else lowering.call("concat", parts, dim=dim)
    value = lowering.get(source)
    others = [place for place in range(len(value.shape)) if place != dim]
    front = lowering.permuted(value, [dim, *others])
    table = lowering.reshaped(front, (size, math.prod(value.shape[place] for place in others)))
    rows = _rows_of(lowering, table, _row_numbers(lowering, index, size))
    count = len(torch_value(index).shape)
    shape = [*torch_value(index).shape, *[value.shape[place] for place in others]]
    found = lowering.reshaped(rows, shape)
    return lowering.permuted(
        found, [*range(count, count + dim), *range(count), *range(count + dim, len(shape))]
    )


def _runs(index: torch.Tensor | None, size: int) -> list[tuple[int, int]] | None:
    """Return a constant index as a few slices, or None; rolling a tensor takes two slices."""
    if index is None or index.is_meta or index.numel() == 0:
        return None
    numbers = _counted_from_front(index.flatten(), size).tolist()
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
        if len(runs) > _MOST_RUNS:
            return None
    return runs


def _rows_of(lowering: Lowering, table: Value, rows: Value) -> Value:
    """Return rows of a matrix: by an embedding lookup in bfloat16, else by gathering elements."""
    flat = lowering.reshaped(rows, (math.prod(rows.shape),))
    if table.dtype == "bfloat16":
        return lowering.call("embedding", flat, lowering.laid_out(table, "row_major"), layout=TILE_LAYOUT)
    column = lowering.laid_out(lowering.reshaped(flat, (flat.shape[0], 1)), "tile")
    index = lowering.call("repeat", column, (1, table.shape[1]))
    return lowering.call("gather", table, 0, index=index)


def _several(lowering: Lowering, node: fx.Node, source: fx.Node, first: int, indices: list[fx.Node]) -> Value:
    """Lower a lookup along adjacent dimensions: they are flattened into one, and so are their indices."""
    if first != 0:
        refuse("argument", "several dimensions after the first are indexed at once")
    value = lowering.get(source)
    sizes = value.shape[: len(indices)]
    number: Value | None = None
    for index, size in zip(indices, sizes, strict=True):
        one = _one_index(lowering, index, size)
        number = one if number is None else lowering.call("add", lowering.call("mul", number, size), one)
    assert number is not None
    rest = value.shape[len(indices) :]
    table = lowering.reshaped(value, (math.prod(sizes), math.prod(rest)))
    shape = number.shape
    flat = lowering.reshaped(number, (math.prod(shape),))
    rows = lowering.laid_out(lowering.cast(flat, "uint32"), "row_major")
    return lowering.reshaped(_rows_of(lowering, table, rows), (*shape, *rest))


def _one_index(lowering: Lowering, index: fx.Node, size: int) -> Value:
    if is_weight(index):
        return lowering.weight(
            index, lambda tensor: _counted_from_front(tensor, size), ("front", size), dtype="int32"
        )
    return _not_negative(lowering, index, size)

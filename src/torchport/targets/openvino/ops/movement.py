"""Rules for ops that move, look up or create elements without changing their values.

Indices are proved or checked to be in bounds elsewhere. Constants are folded before verdicts are requested.
"""

from __future__ import annotations

import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.float_ranges import Range, range_of_numbers, union
from torchport.targets.openvino.float_values import Values
from torchport.targets.openvino.int4_weights import is_quantized_lookup
from torchport.targets.openvino.open_size_checks import any_size, fixed_along
from torchport.targets.openvino.rules import NaN, argument, checked, given, shape, takes, value_of

ZERO = Range(0.0, 0.0)


def moved(node: fx.Node, values: Values) -> Range:
    """Return the range of the operands: the result's elements are theirs."""
    return values.of_sources(node)


def _fixed_split(node: fx.Node) -> Verdict | None:
    """Refuse an open size along the split dimension, as the number of parts is fixed."""
    dim = given(node, 1 if "unbind" in str(node.target) else 2, "dim", 0)
    assert isinstance(dim, int)
    if not isinstance(value_of(node).shape[dim], int):
        return shape("the split dimension has an open size")
    return None


def _fixed_place(node: fx.Node) -> Verdict | None:
    """Refuse an open size along the dimension of a slice that is written, and an open place in it."""
    if all(isinstance(number, int | None) for number in (*node.args[2:], *node.kwargs.values())):
        return fixed_along(2)(node)
    return shape("the place of the write has an open size")


takes(
    "view.default _unsafe_view.default permute.default unsqueeze.default",
    "fib",
    moved,
    NaN.EXACT,
    open=any_size,
)
takes("squeeze.dim squeeze.dims", "fib", moved, NaN.EXACT, open=fixed_along(1))
takes("transpose.int", "fib", moved, NaN.EXACT, open=any_size)
takes(
    "slice.Tensor select.int cat.default flip.default clone.default", "fib", moved, NaN.EXACT, open=any_size
)
takes("split.Tensor split_with_sizes.default", "fi", moved, NaN.EXACT, open=_fixed_split)
takes("unbind.int", "fi", moved, NaN.EXACT, open=_fixed_split)
takes("slice_scatter.default select_scatter.default", "fi", moved, NaN.EXACT, open=_fixed_place)
takes("pixel_shuffle.default pixel_unshuffle.default", "f", moved, NaN.EXACT)


@checked("expand.default", "fib", moved, NaN.EXACT, open=any_size)
def _expand(node: fx.Node) -> Verdict | None:
    """Refuse a result without dimensions: OpenVINO may end the process."""
    return None if value_of(node).dim() else shape("the result is zero-dimensional")


@checked("repeat.default", "fib", moved, NaN.EXACT, open=any_size)
def _repeat(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() == 0:
        return shape("the input is zero-dimensional")
    return None


def _padded(node: fx.Node, values: Values) -> Range:
    return union([values.of(node.args[0]), values.of(given(node, 2, "value", 0))])


takes("constant_pad_nd.default", "fi", _padded, NaN.EXACT, open=any_size)
takes(
    "tril.default triu.default", "fib",
    lambda node, values: union([values.of(node.args[0]), ZERO]), open=any_size,
)  # fmt: skip
takes("index_select.default", "fi", moved, NaN.EXACT, open=any_size)


def _merged_range(node: fx.Node, values: Values) -> Range:
    return union([values.of(node.args[0]), values.of(node.args[3])])


@checked("index_copy.default", "fi", _merged_range, NaN.EXACT, open=any_size)
def _index_copy(node: fx.Node) -> Verdict | None:
    """Require distinct indices: of several copies to one index, torch keeps the last, OpenVINO any."""
    if value_of(node).dim() == 0:
        return shape("the destination is zero-dimensional")
    if not _are_distinct(node.args[2]):
        return argument("two indices could be the same")
    return None


def _are_distinct(index: object) -> bool:
    """Whether indices are consecutive numbers from any start, possibly wrapping around to 0."""
    limit: object = None
    if _is_call(index, "aten.remainder.Scalar"):
        index, limit = index.args  # type: ignore[attr-defined]  # a node
    if _is_call(index, "aten.add.Tensor"):
        parts = index.args[:2]  # type: ignore[attr-defined]  # a node
        index = next((part for part in parts if _follow_each_other(part)), None)
        if any(isinstance(part, fx.Node) and _size(part) != 1 for part in parts if part is not index):
            return False
    if not isinstance(index, fx.Node) or not _follow_each_other(index):
        return False
    count = _size(index)
    return limit is None or (isinstance(count, int) and isinstance(limit, int) and count <= limit)


def _follow_each_other(index: object) -> bool:
    if _is_call(index, "aten.arange.start_step"):
        return len(index.args) <= 2  # type: ignore[attr-defined]  # a node; the third is the step
    module = index.graph.owning_module if isinstance(index, fx.Node) and index.op == "get_attr" else None
    if module is None:
        return False
    steps = getattr(module, str(index.target)).diff()  # type: ignore[attr-defined]  # a node
    return steps.dim() == 1 and bool((steps == 1).all())


def _size(node: fx.Node) -> object:
    return node.meta["val"].numel()


def _is_call(node: object, name: str) -> bool:
    return isinstance(node, fx.Node) and str(node.target) == name


@checked("embedding.default", "fiq", moved, NaN.EXACT, open=any_size)
def _embedding(node: fx.Node) -> Verdict | None:
    if not value_of(node).dtype.is_floating_point and not is_quantized_lookup(node):
        return argument("the embedding table does not hold floats")
    return None


@checked("gather.default", "fib", moved, NaN.EXACT, open=any_size)
def _gather(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() == 0 or value_of(node, 2).dim() == 0:
        return shape("the input or the index is zero-dimensional")
    return None


@checked("index.Tensor", "fib", moved, NaN.EXACT, open=any_size)
def _index(node: fx.Node) -> Verdict | None:
    indices = node.args[1]
    assert isinstance(indices, (list, tuple))
    given = [item for item in indices if isinstance(item, fx.Node)]
    if any(item.meta["val"].dtype == torch.bool for item in given):
        return argument("a boolean mask is used as an index: the result's shape depends on its values")
    places = [place for place, item in enumerate(indices) if isinstance(item, fx.Node)]
    if places != list(range(places[0], places[0] + len(places))):
        return argument("the indexed dimensions are not adjacent")
    return None


takes(
    "full.default full_like.default", "fib", lambda node, values: values.of(node.args[1]), NaN.EXACT,
    open=any_size,
)  # fmt: skip
takes("zeros_like.default", "fib", lambda node, values: ZERO, NaN.EXACT, open=any_size)
takes("ones_like.default", "fib", lambda node, values: Range(1.0, 1.0), NaN.EXACT, open=any_size)


def _counted(node: fx.Node, values: Values) -> Range:
    return range_of_numbers(*[float(item) for item in node.args if isinstance(item, (int, float))], 0.0)


takes("arange.start_step", "fi", _counted, open=any_size)

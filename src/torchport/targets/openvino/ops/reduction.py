"""Reductions and scans."""

from __future__ import annotations

import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.rules import argument, checked, shape, takes, value_of
from torchport.targets.value_ranges import bounds_of

takes("amax.default amin.default", "fi")
takes("any.default any.dim any.dims all.default all.dim", "b")


@checked("sum.dim_IntList mean.dim sum.default mean.default", "fi")
def _reduction(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() == 0:
        return shape("a single number is reduced")
    if node.kwargs.get("dtype") not in (None, value_of(node).dtype):
        return argument("the result is asked for in another dtype")
    return None


@checked("argmax.default argmin.default", "fi")
def _place(node: fx.Node) -> Verdict | None:
    """Of equal elements the first is taken, as torch does; negative integers are ordered wrongly."""
    if value_of(node).dim() == 0:
        return shape("a single number is searched")
    if not value_of(node).is_floating_point() and bounds_of(node.args[0])[0] < 0:
        return argument("the integers could be negative")
    return None


@checked("cumsum.default", "fi")
def _cumsum(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() == 0:
        return shape("a single number is scanned")
    if node.kwargs.get("dtype") not in (None, value_of(node).dtype):
        return argument("the result is asked for in another dtype")
    return None


@checked("linalg_vector_norm.default", "f")
def _norm(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() == 0:
        return shape("a single number is reduced")
    if node.kwargs.get("dtype") is not None:
        return argument("the result is asked for in another dtype")
    if len(node.args) < 3 or not node.args[2]:
        return argument("all dimensions are reduced at once")
    order = node.args[1]
    if order not in (1, 2):
        return argument(f"the order of the norm is {order!r}")
    return None


@checked("var.correction", "f")
def _variance(node: fx.Node) -> Verdict | None:
    source, result = value_of(node), node.meta["val"]
    assert isinstance(result, torch.Tensor)
    count = source.numel() // max(result.numel(), 1)
    correction = node.kwargs.get("correction", 1)
    correction = 1 if correction is None else correction
    if not isinstance(correction, int) or count <= correction:
        return argument(f"the correction {correction!r} leaves nothing of {count} elements")
    if len(node.args) < 2 or not node.args[1]:
        return argument("all dimensions are reduced at once")
    return None

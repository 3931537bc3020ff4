"""Pooling."""

from __future__ import annotations

from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.rules import argument, checked, given, shape, takes, value_of

takes("_adaptive_avg_pool2d.default _adaptive_avg_pool3d.default", "f")


@checked("avg_pool2d.default avg_pool3d.default", "f")
def _average(node: fx.Node) -> Verdict | None:
    if given(node, 6, "divisor_override") is not None:
        return argument("divisor_override is given")
    if given(node, 4, "ceil_mode", False):
        return argument("ceil_mode rounds the borders in another way")
    return _batched(node, 4 if "2d" in str(node.target) else 5)


@checked("max_pool2d_with_indices.default max_pool3d_with_indices.default", "fi")
def _maximum(node: fx.Node) -> Verdict | None:
    if any(user.args[1] == 1 for user in node.users):
        return argument("the indices are used, and ties are broken in another way")
    return _batched(node, 4 if "2d" in str(node.target) else 5)


def _batched(node: fx.Node, dimensions: int) -> Verdict | None:
    if value_of(node).dim() != dimensions:
        return shape("the input has no batch dimension")
    return None

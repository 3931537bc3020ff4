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
    if given(node, 4, "ceil_mode", False) and not _divides(node):
        return argument("ceil_mode rounds the borders in another way")
    return _batched(node, 4 if "2d" in str(node.target) else 5)


@checked("max_pool2d_with_indices.default max_pool3d_with_indices.default", "fi")
def _maximum(node: fx.Node) -> Verdict | None:
    if any(user.args[1] == 1 for user in node.users):
        return argument("the indices are used, and ties are broken in another way")
    return _batched(node, 4 if "2d" in str(node.target) else 5)


def _divides(node: fx.Node) -> bool:
    """Whether the windows end where the input ends, so that rounding up or down is the same."""
    kernel = _numbers(node.args[1])
    stride = _numbers(given(node, 2, "stride")) or kernel
    padding = _numbers(given(node, 3, "padding", 0))
    sizes = value_of(node).shape[-len(kernel) :]
    return all(
        (size + 2 * pad - window) % step == 0
        for size, window, step, pad in zip(
            sizes, kernel, _spread(stride, kernel), _spread(padding or [0], kernel), strict=True
        )
    )


def _numbers(value: object) -> list[int]:
    if isinstance(value, int):
        return [value]
    return [item for item in value if isinstance(item, int)] if isinstance(value, (list, tuple)) else []


def _spread(values: list[int], over: list[int]) -> list[int]:
    return values * len(over) if len(values) == 1 else values


def _batched(node: fx.Node, dimensions: int) -> Verdict | None:
    if value_of(node).dim() != dimensions:
        return shape("the input has no batch dimension")
    return None

"""Turns 8-bit weights into floats where a product sums over elements of different scales.

No integer kernel has a scale for each summand. OpenVINO and onnxruntime fuse such a product with the
roundings around it all the same: then they fail, or apply the scales to another dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

_aten = torch.ops.aten
_CONVOLUTION = _aten.convolution.default
_LINEAR = _aten.linear.default
_TRANSPOSED = 6  # the place of this argument of a convolution
# The places of the two factors of products.
_FACTORS: dict[Any, tuple[int, ...]] = {
    _aten.mm.default: (0, 1),
    _aten.bmm.default: (0, 1),
    _aten.matmul.default: (0, 1),
    _aten.addmm.default: (1, 2),
    _aten.baddbmm.default: (1, 2),
    _LINEAR: (0, 1),
}
# Ops that only move elements.
_MOVES: dict[Any, Callable[..., torch.Tensor]] = {
    _aten.view.default: torch.reshape,
    _aten._unsafe_view.default: torch.reshape,
    **{
        op: op
        for op in (
            _aten.clone.default,
            _aten.expand.default,
            _aten.permute.default,
            _aten.select.int,
            _aten.slice.Tensor,
            _aten.squeeze.dim,
            _aten.squeeze.dims,
            _aten.transpose.int,
            _aten.unsqueeze.default,
        )
    },
}


def dequantize_summed(graph_module: fx.GraphModule) -> None:
    """Replace such weights of an island whose products' inputs are rounded, in place."""
    graph = graph_module.graph
    if not any("fake_quantize" in str(node.target) for node in graph.nodes):
        return  # products of floats, which weights in eight bits only make smaller
    changed = False
    for node in list(graph.nodes):
        parts = _integers_and_scale(graph_module, node)
        if parts is None or not _is_summed(node, parts[1].expand(parts[0].shape)):
            continue
        name = f"{node.name}_in_floats"
        graph_module.register_buffer(name, parts[0].to(parts[1].dtype) * parts[1], persistent=False)
        with graph.inserting_before(node):
            floats = graph.get_attr(name)
        floats.meta = dict(node.meta)
        node.replace_all_uses_with(floats)
        changed = True
    if changed:
        graph.eliminate_dead_code()
        graph_module.recompile()


def _integers_and_scale(
    graph_module: fx.GraphModule, node: fx.Node
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return an 8-bit weight and its scales, if they differ; None for any other node."""
    if node.target is not _aten.mul.Tensor:
        return None
    cast, factor = node.args
    if not isinstance(cast, fx.Node) or cast.target is not _aten._to_copy.default:
        return None
    integers, scale = (_stored(graph_module, each) for each in (cast.args[0], factor))
    if integers is None or scale is None or integers.dtype not in (torch.int8, torch.uint8):
        return None
    return (integers, scale) if scale.numel() == max(scale.shape, default=1) > 1 else None


def _is_summed(node: fx.Node, scale: torch.Tensor) -> bool:
    """Whether a product that a weight reaches sums over elements of different scales.

    Args:
        node: the weight, or what it is after ops that move its elements.
        scale: the scale of each of its elements.
    """
    for user in node.users:
        for place, operand in enumerate(user.args):
            if operand is node and any(_varies(scale, dim) for dim in _summed_dims(user, place, scale.dim())):
                return True
        move = _MOVES.get(user.target)
        if move is not None and _is_summed(user, move(scale, *user.args[1:], **user.kwargs)):
            return True
    return False


def _varies(scale: torch.Tensor, dim: int) -> bool:
    return bool((scale != scale.narrow(dim, 0, 1)).any())


def _summed_dims(node: fx.Node, place: int, dims: int) -> Iterable[int]:
    """Return the dimensions of an operand along which its scales may not differ."""
    if node.target is _CONVOLUTION:
        return range(1, dims) if place == 1 and not node.args[_TRANSPOSED] else ()
    factors = _FACTORS.get(node.target, ())
    if place not in factors or dims < 2:
        return ()
    if dims > 2:
        return range(dims)  # no kernel of either engine has more than one scale for all matrices
    return (1,) if place == factors[0] or node.target is _LINEAR else (0,)


def _stored(graph_module: fx.GraphModule, value: object) -> torch.Tensor | None:
    if not isinstance(value, fx.Node) or value.op != "get_attr":
        return None
    tensor = getattr(graph_module, str(value.target))
    return tensor.detach() if isinstance(tensor, torch.Tensor) else None

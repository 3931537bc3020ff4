"""Folds per-channel ops after a convolution, such as a batch norm, into its weights."""

from __future__ import annotations

import operator
from collections.abc import Collection

import torch
from torch import fx

# By name: in a graph read from a file, ops whose calls are checked are torchport's own callables.
CONVOLUTION = "aten.convolution.default"
_NORM = "aten._native_batch_norm_legit_no_training.default"
_ADDS = {"aten.add.Tensor": 1.0, "aten.sub.Tensor": -1.0}


def fold_scales(graph_module: fx.GraphModule, dtypes: Collection[torch.dtype] | None = None) -> None:
    """Fold sums and products with per-channel constants into the convolution before them.

    Norms in evaluation mode amount to these: they subtract a mean, multiply by scales, and add a shift.

    Args:
        graph_module: changed in place.
        dtypes: the dtypes of weights that are folded; all if None.
    """
    for node in list(graph_module.graph.nodes):
        if str(node.target) == CONVOLUTION and len(node.args) == 9 and not node.args[6]:
            weight = _constant(graph_module, node.args[1])
            if dtypes is None or (weight is not None and weight.dtype in dtypes):
                _fold_after(graph_module, node)
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()


def _fold_after(graph_module: fx.GraphModule, convolution: fx.Node) -> None:
    weight = _constant(graph_module, convolution.args[1])
    bias = _constant(graph_module, convolution.args[2])
    if weight is None or (bias is None and convolution.args[2] is not None) or not weight.is_floating_point():
        return
    if weight.dim() < 3 or (bias is not None and bias.shape != weight.shape[:1]):
        return  # in a file; inductor refuses it
    scale = torch.ones(weight.shape[0], dtype=torch.float64, device=weight.device)
    shift = torch.zeros_like(scale) if bias is None else bias.double()
    last = convolution
    while True:
        step = _next_step(graph_module, last, weight)
        if step is None:
            break
        last, factor, summand = step
        scale, shift = scale * factor, shift * factor + summand
    if last is convolution:
        return
    scaled = weight.double() * scale.reshape(-1, *[1] * (weight.dim() - 1))
    if not all(_fits(tensor, weight.dtype) for tensor in (scaled, shift.reshape(-1, 1))):
        return
    graph = graph_module.graph
    with graph.inserting_before(convolution):
        made = [
            _add_constant(graph_module, tensor.to(weight.dtype), convolution) for tensor in (scaled, shift)
        ]
    convolution.args = (convolution.args[0], *made, *convolution.args[3:])
    last.replace_all_uses_with(convolution)


def _fits(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether a dtype holds each channel, relative to its largest number, without losing digits."""
    if not tensor.numel():
        return True
    largest = tensor.flatten(1).abs().amax(1)
    lost = (tensor.to(dtype) - tensor).flatten(1).abs().amax(1)
    return bool((lost <= torch.finfo(dtype).eps * largest).all())


def _next_step(
    graph_module: fx.GraphModule, node: fx.Node, weight: torch.Tensor
) -> tuple[fx.Node, torch.Tensor | float, torch.Tensor | float] | None:
    """Return the only user of a node, and the per-channel factor and summand that it applies."""
    if len(node.users) != 1:
        return None
    [user] = node.users
    if str(user.target) == _NORM and len(user.args) == 7 and user.args[0] is node:
        return _norm_step(graph_module, user, weight.shape[:1])
    if user.op != "call_function" or user.kwargs or len(user.args) != 2 or user.args[0] is not node:
        return None
    number = _by_channel(graph_module, user.args[1], weight)
    if number is None:
        return None
    name = str(user.target)
    if name in _ADDS:
        return user, 1.0, _ADDS[name] * number
    return (user, number, 0.0) if name == "aten.mul.Tensor" else None


def _norm_step(
    graph_module: fx.GraphModule, norm: fx.Node, shape: torch.Size
) -> tuple[fx.Node, torch.Tensor, torch.Tensor] | None:
    """Return the result of a batch norm in evaluation mode, and its per-channel factor and summand."""
    mean, variance = (_constant(graph_module, value) for value in norm.args[3:5])
    scale, shift = (_constant(graph_module, value) for value in norm.args[1:3])
    eps = norm.args[6]
    given = scale is not None or norm.args[1] is None, shift is not None or norm.args[2] is None
    if mean is None or variance is None or not all(given) or not isinstance(eps, float):
        return None
    if any(tensor is not None and tensor.shape != shape for tensor in (mean, variance, scale, shift)):
        return None
    results = list(norm.users)
    if len(results) != 1 or results[0].target is not operator.getitem or results[0].args[1] != 0:
        return None
    factor = (variance.double() + eps).rsqrt() * (1.0 if scale is None else scale.double())
    return results[0], factor, (0.0 if shift is None else shift.double()) - mean.double() * factor


def _by_channel(
    graph_module: fx.GraphModule, value: object, weight: torch.Tensor
) -> torch.Tensor | float | None:
    """Return a per-channel constant, or one number for all channels."""
    if isinstance(value, (int, float)):
        return float(value)
    tensor = _constant(graph_module, value)
    if tensor is None or tensor.dtype != weight.dtype:
        return None
    spatial = weight.dim() - 2
    shape = tuple(tensor.shape)
    # All elements must lie along the channel dimension: one number per image of a batch is not per-channel.
    if shape[-spatial:] != (1,) * spatial or shape[-spatial - 1 : -spatial] != (tensor.numel(),):
        return None
    return tensor.double().reshape(-1) if tensor.numel() in (1, weight.shape[0]) else None


def _constant(graph_module: fx.GraphModule, value: object) -> torch.Tensor | None:
    if isinstance(value, fx.Node) and value.op == "get_attr":
        found = getattr(graph_module, str(value.target))
        return found.detach() if isinstance(found, torch.Tensor) else None
    return None


def _add_constant(graph_module: fx.GraphModule, tensor: torch.Tensor, near: fx.Node) -> fx.Node:
    name = f"folded_{len([each for each in graph_module.graph.nodes if each.op == 'get_attr'])}_{near.name}"
    graph_module.register_buffer(name, tensor)
    made = graph_module.graph.get_attr(name)
    made.meta["val"] = tensor
    return made

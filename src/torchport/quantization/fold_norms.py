"""Folds batch norms in evaluation mode into the weights of the preceding layers."""

from __future__ import annotations

import torch
from torch import fx

from torchport.quantization.graph_tensors import add_tensor, is_trained, tensor_of

_NORM = "aten.batch_norm.default"
# Ops whose weights have output channels in the first dimension.
_PLAIN = tuple(f"aten.conv{dims}d.{form}" for dims in (1, 2, 3) for form in ("default", "padding"))
# In transposed convolutions it is the second dimension, within each group.
_TRANSPOSED = ("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")


def fold_norms(graph_module: fx.GraphModule) -> None:
    """Fold each batch norm that is the only reader of a convolution or linear layer."""
    for norm in list(graph_module.graph.nodes):
        if str(norm.target) == _NORM and not norm.args[5]:
            _fold(graph_module, norm)
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()


def _fold(graph_module: fx.GraphModule, norm: fx.Node) -> None:
    layer = norm.args[0]
    assert isinstance(layer, fx.Node)
    if not _has_channels(layer) or len(layer.users) != 1:
        return
    weight = tensor_of(graph_module, layer.args[1])
    old_bias = layer.args[2] if len(layer.args) > 2 else None
    bias = tensor_of(graph_module, old_bias)
    gamma, beta, mean, variance = (tensor_of(graph_module, value) for value in norm.args[1:5])
    given = [value for value in (*norm.args[1:5], old_bias) if value is not None]
    if weight is None or mean is None or variance is None or len(given) != sum(
        item is not None for item in (gamma, beta, mean, variance, bias)
    ):  # fmt: skip
        return
    eps = norm.args[7]
    assert isinstance(eps, float)
    factor = (variance.double() + eps).rsqrt() * (1.0 if gamma is None else gamma.double())
    shift = (0.0 if beta is None else beta.double()) + (
        (0.0 if bias is None else bias.double()) - mean.double()
    ) * factor
    scaled = _scaled(layer, weight.double(), factor).to(weight.dtype)
    name = str(layer.name)
    trained = any(is_trained(graph_module, value) for value in (layer.args[1], *given))
    with graph_module.graph.inserting_before(layer):
        new_weight = add_tensor(graph_module, f"{name}_folded_weight", scaled, trained=trained)
        new_bias = add_tensor(graph_module, f"{name}_folded_bias", shift.to(weight.dtype), trained=trained)
    layer.args = (layer.args[0], new_weight, new_bias, *layer.args[3:])
    norm.replace_all_uses_with(layer)


def _has_channels(layer: fx.Node) -> bool:
    """Whether a node is a layer whose output channels are the channels of a norm after it."""
    name = str(layer.target)
    if name == "aten.linear.default":
        return bool(layer.meta["val"].dim() == 2)
    return name in _PLAIN or name in _TRANSPOSED


def _scaled(layer: fx.Node, weight: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return a weight with each output channel multiplied by its factor."""
    if str(layer.target) not in _TRANSPOSED:
        return weight * factor.reshape(-1, *[1] * (weight.dim() - 1))
    groups = layer.args[6] if len(layer.args) > 6 else 1
    assert isinstance(groups, int)
    sizes = weight.shape
    apart = weight.reshape(groups, sizes[0] // groups, *sizes[1:])
    return (apart * factor.reshape(groups, 1, -1, *[1] * (len(sizes) - 2))).reshape(sizes)

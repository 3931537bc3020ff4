"""Folds batch norms of evaluation mode into the weights of what comes before them."""

from __future__ import annotations

from torch import fx

from torchport.quantization.graph_tensors import add_tensor, tensor_of

_NORM = "aten.batch_norm.default"
# The dimension of the weight that goes over output channels.
_OUTPUT_DIM = {
    "aten.conv1d.default": 0, "aten.conv2d.default": 0, "aten.conv3d.default": 0, "aten.linear.default": 0,
    "aten.conv1d.padding": 0, "aten.conv2d.padding": 0, "aten.conv3d.padding": 0,
}  # fmt: skip
# Of a transposed convolution it is the second, within each group: those without groups are folded.
_TRANSPOSED = {
    "aten.conv_transpose1d.default": 1, "aten.conv_transpose2d.input": 1, "aten.conv_transpose3d.input": 1,
}  # fmt: skip


def fold_norms(graph_module: fx.GraphModule) -> None:
    """Fold each batch norm that alone reads a convolution or linear layer."""
    for norm in list(graph_module.graph.nodes):
        if str(norm.target) == _NORM and not norm.args[5]:
            _fold(graph_module, norm)
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()


def _fold(graph_module: fx.GraphModule, norm: fx.Node) -> None:
    layer = norm.args[0]
    assert isinstance(layer, fx.Node)
    dim = _channel_dim(layer)
    if dim is None or len(layer.users) != 1:
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
    sizes = [-1 if place == dim else 1 for place in range(weight.dim())]
    scaled = (weight.double() * factor.reshape(sizes)).to(weight.dtype)
    name = str(layer.name)
    with graph_module.graph.inserting_before(layer):
        new_weight = add_tensor(graph_module, f"{name}_folded_weight", scaled)
        new_bias = add_tensor(graph_module, f"{name}_folded_bias", shift.to(weight.dtype))
    layer.args = (layer.args[0], new_weight, new_bias, *layer.args[3:])
    norm.replace_all_uses_with(layer)


def _channel_dim(layer: fx.Node) -> int | None:
    name = str(layer.target)
    if name == "aten.linear.default" and layer.meta["val"].dim() != 2:
        return None  # the norm goes over another dimension than the layer's outputs
    if name in _TRANSPOSED:
        groups = layer.args[6] if len(layer.args) > 6 else 1
        return _TRANSPOSED[name] if groups == 1 else None
    return _OUTPUT_DIM.get(name)

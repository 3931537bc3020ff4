"""Quantization-aware training: a model that rounds like the quantized one, and learns to tolerate it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import fx, nn

from torchport.capture import quiet_torch
from torchport.quantization.decisions import Decisions, QuantizedWeight
from torchport.quantization.graph_quantization import GraphQuantization
from torchport.quantization.graph_tensors import constant_of
from torchport.quantization.operands import map_operands, operands
from torchport.quantization.quantized_graph import apply_edges, drop_unused
from torchport.quantization.quantized_model import GraphCall, QuantizedModel
from torchport.records.quantization import HALF_PRECISIONS

_MOST = 127


class TrainableModel(nn.Module):
    """A model that rounds weights and activations during training. Made by `quantize(method="qat")`.

    Its parameters are copies of the model's, with norms folded into them. Parameters that are frozen in the
    model stay frozen, unless all of them are. Train it as the model was trained, then call `convert`.
    Gradients pass straight through the rounding.

    Args:
        quantization: the calibrated model; its calibrated ranges stay fixed.
        finish: makes the quantized model from the trained one.
    """

    def __init__(
        self, quantization: GraphQuantization, finish: Callable[[GraphQuantization], QuantizedModel]
    ) -> None:
        super().__init__()
        self._quantization = quantization
        self._finish = finish
        self.module = GraphCall(_trainable_copy(quantization), quantization.floats.call)

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the model with simulated rounding."""
        return self.module(*args, **kwargs)

    def convert(self) -> QuantizedModel:
        """Return the quantized model, with the current weights."""
        quantization = self._quantization
        with quiet_torch():
            floats = copy.deepcopy(quantization.floats.graph_module)
        trained = dict(self.module.graph_module.named_parameters())
        with torch.no_grad():
            for name, parameter in floats.named_parameters():
                if name in trained:
                    parameter.copy_(trained[name])
        decisions = Decisions(dict(quantization.decisions.edges))
        most = _largest_step(quantization.decisions)
        for node in floats.graph.nodes:
            for place, operand in enumerate(operands(node)):
                old = quantization.decisions.weights.get((node.name, place))
                if old is None:
                    continue
                weight = constant_of(floats, operand)  # stored, sliced from a packed one, or computed
                if weight is not None:
                    scale = _scale(weight, old.scale, most)
                    values = (weight / scale).round().clamp(-most, most).to(torch.int8)
                    decisions.weights[node.name, place] = QuantizedWeight(values, scale)
        return self._finish(
            replace(
                quantization, floats=replace(quantization.floats, graph_module=floats), decisions=decisions
            )
        )


def _largest_step(calibrated: Decisions) -> int:
    """Return the largest quantized magnitude of all weights: smaller where seven bits were chosen.

    One layer is not enough: a weight of zeros, which training has yet to change, has no nonzero value.
    """
    steps = max((int(weight.values.abs().max()) for weight in calibrated.weights.values()), default=0)
    return min(_MOST, steps) or _MOST


def _scale(weight: torch.Tensor, like: torch.Tensor, most: int) -> torch.Tensor:
    """Return the scale of a weight, per channel or per tensor, with the granularity of another scale."""
    dims = [dim for dim in range(weight.dim()) if like.dim() != weight.dim() or like.shape[dim] == 1]
    largest = weight.detach().abs().amax(dims, keepdim=True) if dims else weight.detach().abs()
    return (largest / most).clamp_min(torch.finfo(torch.float32).tiny)


def rounded_weight(weight: torch.Tensor, like: torch.Tensor, most: int = _MOST) -> torch.Tensor:
    """Return a weight rounded to int8 values times a scale; its gradient passes straight through."""
    scale = _scale(weight, like, most)
    held = (weight.detach() / scale).round().clamp(-most, most) * scale
    return weight + (held - weight.detach())


def _trainable_copy(quantization: GraphQuantization) -> fx.GraphModule:
    with quiet_torch():
        made = copy.deepcopy(quantization.floats.graph_module)
    chosen = {layer.node: quantization.plans[layer.name].precision for layer in quantization.layers}
    for node, precision in chosen.items():
        if precision in HALF_PRECISIONS:  # trained in float32, and cast on conversion
            chosen[node] = "float"
    apply_edges(made, quantization.decisions, chosen)
    most = _largest_step(quantization.decisions)
    for node in list(made.graph.nodes):
        if chosen.get(node.name, "float") == "float":
            continue

        def rounding(place: int, value: fx.Node, node: fx.Node = node) -> fx.Node:
            weight = quantization.decisions.weights.get((node.name, place))
            if weight is None:
                return value
            name = f"{node.name}_scale_{place}"
            made.register_buffer(name, weight.scale, persistent=False)
            with made.graph.inserting_before(node):
                scale = made.graph.get_attr(name)
                return made.graph.call_function(rounded_weight, (value, scale, most))

        node.args, node.kwargs = map_operands(node, rounding)
    made.graph.eliminate_dead_code()
    drop_unused(made)  # such as weights that norms were folded into: an optimizer would hold them in vain
    made.graph.lint()
    made.recompile()
    parameters = [each for each in made.parameters() if each.is_floating_point()]
    if not any(each.requires_grad for each in parameters):  # an inference-only model: all are trained
        for parameter in parameters:
            parameter.requires_grad_()
    return made

"""Quantization-aware training: a model that rounds as the quantized one will, and learns to live with it."""

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
    """A model in the training of which weights and activations are rounded. Made by `quantize(method="qat")`.

    Its parameters are the model's own, copied; norms are folded into them. Those that the model does not
    train are not trained, unless it trains none. Train it as the model was trained, then call `convert`.
    Gradients pass through the rounding as if it were not there.

    Args:
        quantization: the calibrated model; its calibrated ranges stay.
        finish: makes the quantized model of what was trained.
    """

    def __init__(
        self, quantization: GraphQuantization, finish: Callable[[GraphQuantization], QuantizedModel]
    ) -> None:
        super().__init__()
        self._quantization = quantization
        self._finish = finish
        self.module = GraphCall(_trainable_copy(quantization), quantization.floats.call)

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the model, rounding."""
        return self.module(*args, **kwargs)

    def convert(self) -> QuantizedModel:
        """Return the quantized model, with the weights as they are now."""
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
                weight = constant_of(floats, operand)  # or part of a packed one, or computed of others
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
    """Return the largest number that steps of weights go to: fewer where seven bits were chosen.

    One layer does not tell: a weight of zeros, which training has yet to change, has no steps.
    """
    steps = max((int(weight.values.abs().max()) for weight in calibrated.weights.values()), default=0)
    return min(_MOST, steps) or _MOST


def _scale(weight: torch.Tensor, like: torch.Tensor, most: int) -> torch.Tensor:
    """Return the scale of a weight, for each channel or for all, as another one has it."""
    dims = [dim for dim in range(weight.dim()) if like.dim() != weight.dim() or like.shape[dim] == 1]
    largest = weight.detach().abs().amax(dims, keepdim=True) if dims else weight.detach().abs()
    return (largest / most).clamp_min(torch.finfo(torch.float32).tiny)


def rounded_weight(weight: torch.Tensor, like: torch.Tensor, most: int = _MOST) -> torch.Tensor:
    """Return a weight as eight bits hold it; its gradient is the weight's own."""
    scale = _scale(weight, like, most)
    held = (weight.detach() / scale).round().clamp(-most, most) * scale
    return weight + (held - weight.detach())


def _trainable_copy(quantization: GraphQuantization) -> fx.GraphModule:
    with quiet_torch():
        made = copy.deepcopy(quantization.floats.graph_module)
    chosen = {layer.node: quantization.plans[layer.name].precision for layer in quantization.layers}
    for node, precision in chosen.items():
        if precision in HALF_PRECISIONS:  # trained in float32, and cast when it is converted
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
    drop_unused(made)  # those that norms were folded into, for one: an optimizer would hold them in vain
    made.graph.lint()
    made.recompile()
    parameters = [each for each in made.parameters() if each.is_floating_point()]
    if not any(each.requires_grad for each in parameters):  # a model for inference alone: all are trained
        for parameter in parameters:
            parameter.requires_grad_()
    return made

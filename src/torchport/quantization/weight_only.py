"""Weights in eight bits, arithmetic in floats: linear layers of a copy of the model are replaced.

The copy stays the model's own class, so that whatever the model can do, such as `generate`, it can too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Sequence

import torch
from torch import nn

from torchport.capture import quiet_torch
from torchport.errors import QuantizationError
from torchport.quantization.budget import Outcome, count_sensitive, outcome_of, score_of
from torchport.quantization.calibration import call_of
from torchport.quantization.layers import Layer, overridden
from torchport.quantization.noise import Noise
from torchport.quantization.options import AccuracyBudget, QuantizationOptions
from torchport.quantization.quantized_graph import weight_bytes
from torchport.quantization.quantized_model import QuantizedModel
from torchport.records.quantization import LayerPlan, LayerReport, QuantizationPlan, QuantizationReport
from torchport.structure import flatten

_OP = "aten.linear.default"


class WeightOnlyLinear(nn.Module):
    """A linear layer whose weight is stored in eight bits, with a scale for each output.

    Args:
        linear: the layer in floats.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        largest = weight.float().abs().amax(1, keepdim=True)
        scale = (largest / 127).clamp_min(torch.finfo(torch.float32).tiny)
        # Parameters, not buffers: the compiler computes with constants beforehand.
        self.values = nn.Parameter((weight / scale).round().clamp(-127, 127).to(torch.int8), False)
        self.scale = nn.Parameter(scale.to(weight.dtype), False)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone(), False)

    @property
    def weight(self) -> torch.Tensor:
        """The weight that is stored, in floats."""
        return self.values.to(self.scale.dtype) * self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute in floats."""
        return nn.functional.linear(x, self.weight, self.bias)


def quantize_weights(
    model: nn.Module,
    data: Iterable[object],
    budget: AccuracyBudget,
    options: QuantizationOptions,
    target: str,
    name: str,
) -> QuantizedModel:
    """Return a copy of a model whose linear layers have their weights in eight bits.

    Args:
        model: the model.
        data: inputs to judge by; nothing is calibrated, so there may be none.
        budget: what must be kept.
        options: only the overrides matter.
        target, name: for the records.

    Raises:
        QuantizationError: it has no linear layer, an override does not fit, or the accuracy cannot be kept.
    """
    if model.training:
        raise QuantizationError("the model is in training mode", where=name, remedy="call model.eval() first")
    layers = [
        Layer(path, path or "linear", _OP, True)
        for path, module in model.named_modules()
        if type(module) is nn.Linear
    ]
    if not layers:
        raise QuantizationError("it has no linear layer", where=name, remedy='use method="ptq"')
    plans = _plans(model, layers, options, name)
    quantized = {
        layer.name: WeightOnlyLinear(model.get_submodule(layer.node))  # type: ignore[arg-type]  # a linear layer
        for layer in layers
        if plans[layer.name].precision == "weight_only"
    }
    paths = {layer.name: layer.node for layer in layers}
    noise = {each: _weight_noise(quantized[each], model.get_submodule(paths[each])) for each in quantized}
    items = list(data)
    score_float = score_of(budget, model, "float", name) if budget.evaluate is not None else None

    def build(in_floats: Collection[str]) -> nn.Module:
        with quiet_torch():
            made = copy.deepcopy(model)
        for each, new in quantized.items():
            if each not in in_floats:
                made = _put(made, paths[each], new)
        return made.eval().requires_grad_(False)

    def judge(in_floats: Sequence[str]) -> Outcome:
        if score_float is not None:
            score = score_of(budget, build(in_floats), "quantized", name)
            return Outcome(score, score_float - budget.max_drop, "the score is")
        return outcome_of(budget, _compare(model, build(in_floats), items))

    free = [each for each in quantized if plans[each].reason == "default"]
    worst_first = sorted(free, key=lambda each: noise[each].sqnr)
    count, outcome = 0, None
    if items or score_float is not None:
        count, outcome = count_sensitive(worst_first, judge, name)
    for each in worst_first[:count]:
        detail = f"its weight's SQNR in int8 is {noise[each].sqnr:.1f} dB, and the model misses its accuracy"
        plans[each] = LayerPlan(each, _OP, "float", "sensitive", detail)
    made = build(worst_first[:count])
    results = _compare(model, made, items)
    rows = [
        LayerReport(
            plan.name, _OP, plan.precision, plan.reason,
            sqnr_isolated=noise[plan.name].sqnr if plan.name in noise else None,
        )
        for plan in plans.values()
    ]  # fmt: skip
    report = QuantizationReport(
        model=name,
        method="weight_only",
        target=target,
        layers=tuple(sorted(rows, key=_sqnr)),
        calibrated_on=0,
        judged_on=len(items),
        pcc=results.pcc if items else None,
        sqnr=results.sqnr if items else None,
        score_float=score_float,
        score=outcome.value if outcome is not None and score_float is not None else None,
        bytes_float=weight_bytes(model),
        bytes=weight_bytes(made),
    )
    return QuantizedModel(made, QuantizationPlan(name, "weight_only", target, tuple(plans.values())), report)


def _sqnr(row: LayerReport) -> float:
    return math.inf if row.sqnr_isolated is None else row.sqnr_isolated


def _plans(
    model: nn.Module, layers: Sequence[Layer], options: QuantizationOptions, name: str
) -> dict[str, LayerPlan]:
    choices = overridden(layers, options.overrides, name)
    embedded = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    found = {}
    for layer in layers:
        precision, pattern = choices.get(layer.name, ("weight_only", ""))
        plan = LayerPlan(layer.name, layer.op, "weight_only")
        if precision == "int8":
            raise QuantizationError(
                f"{layer.name} is to be int8", where=name, remedy='use method="ptq", or weight_only for it'
            )
        if precision == "float":
            plan = LayerPlan(layer.name, layer.op, "float", "kept_by_option", f"by the override {pattern!r}")
        elif id(model.get_submodule(layer.node).weight) in embedded:
            detail = "its weight is that of an embedding, which stays in floats"
            plan = LayerPlan(layer.name, layer.op, "float", "not_supported", detail)
        found[layer.name] = plan
    return found


def _weight_noise(new: WeightOnlyLinear, old: nn.Module) -> Noise:
    assert isinstance(old, nn.Linear)
    noise = Noise()
    noise.add(new.weight, old.weight)
    return noise


def _compare(model: nn.Module, made: nn.Module, items: Iterable[object]) -> Noise:
    """Return how far the results of two models are apart."""
    noise = Noise()
    with torch.no_grad():
        for item in items:
            args, kwargs = call_of(item)
            ours, theirs = (flatten(each(*args, **kwargs)).leaves for each in (made, model))
            for one, other in zip(ours, theirs, strict=True):
                if other.is_floating_point():
                    noise.add(one, other)
    return noise


def _put(model: nn.Module, path: str, new: nn.Module) -> nn.Module:
    if not path:
        return new
    parent, _, last = path.rpartition(".")
    setattr(model.get_submodule(parent), last, new)
    return model

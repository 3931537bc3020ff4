"""Weights in eight or four bits, arithmetic in floats: linear layers of a copy of the model are replaced.

The copy stays the model's own class, so that whatever the model can do, such as `generate`, it can too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
from torch import nn

from torchport import targets
from torchport.capture import quiet_torch
from torchport.errors import QuantizationError, nearest
from torchport.quantization.budget import Outcome, count_sensitive, outcome_of, score_of
from torchport.quantization.calibration import call_of
from torchport.quantization.layers import Layer, overridden
from torchport.quantization.noise import Noise
from torchport.quantization.options import AccuracyBudget, QuantizationOptions
from torchport.quantization.own_weights import OwnFormLinear
from torchport.quantization.quantized_graph import weight_bytes
from torchport.quantization.quantized_model import QuantizedModel
from torchport.quantization.weight_layers import FourBitLinear, WeightOnlyLinear
from torchport.records.quantization import LayerPlan, LayerReport, QuantizationPlan, QuantizationReport
from torchport.structure import flatten

_OP = "aten.linear.default"
_Quantized = WeightOnlyLinear | FourBitLinear | OwnFormLinear


def quantize_weights(
    model: nn.Module,
    data: Iterable[object],
    budget: AccuracyBudget,
    options: QuantizationOptions,
    target: str,
    name: str,
) -> QuantizedModel:
    """Return a copy of a model whose linear layers have their weights in eight or four bits.

    Args:
        model: the model.
        data: inputs to judge by; there may be none. With four bits most of them say how much each input of a
            layer matters, and the others judge.
        budget: what must be kept.
        options: the bits, groups and symmetry of weights, the overrides, a plan.
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
    plans = _plans(model, layers, options, name, target)
    items = list(islice(data, options.samples))
    fitting, judging = _split(items, options) if options.bits == 4 else ([], items)
    made = _WeightQuantization(model, {layer.name: layer.node for layer in layers}, plans, options, target)
    made.quantize(_mean_squares(model, fitting))
    score_float = score_of(budget, model, "float", name) if budget.evaluate is not None else None

    def judge(finer: Sequence[str]) -> Outcome:
        if score_float is not None:
            score = score_of(budget, made.build(finer), "quantized", name)
            return Outcome(score, score_float - budget.max_drop, "the score is")
        return outcome_of(budget, _compare(model, made.build(finer), judging))

    count, outcome, worst_first = 0, None, made.worst_first()
    if judging or score_float is not None:
        fallback = "in eight bits" if options.bits == 4 else "in floats"
        count, outcome = count_sensitive(worst_first, judge, name, fallback)
    made.settle(worst_first[:count])
    result = made.build()
    results = _compare(model, result, judging)
    report = QuantizationReport(
        model=name,
        method="weight_only",
        target=target,
        layers=made.reports(),
        calibrated_on=len(fitting),
        judged_on=len(judging),
        pcc=results.pcc if judging else None,
        sqnr=results.sqnr if judging else None,
        score_float=score_float,
        score=outcome.value if outcome is not None and score_float is not None else None,
        bytes_float=weight_bytes(model),
        bytes=weight_bytes(result),
        note=made.note(),
    )
    plan = QuantizationPlan(name, "weight_only", target, tuple(plans.values()))
    return QuantizedModel(result, plan, report)


@dataclass(slots=True, eq=False)
class _WeightQuantization:
    """A model in the making.

    Args:
        model: the caller's own.
        paths: those of the linear layers, by the layers' names.
        plans: what each has, by its name.
        options: how.
        target: the target, which may store weights in floats of its own.
        quantized: the new layers, by name.
        noise: of each new layer's weight.
    """

    model: nn.Module
    paths: Mapping[str, str]
    plans: dict[str, LayerPlan]
    options: QuantizationOptions
    target: str
    quantized: dict[str, _Quantized] = field(default_factory=dict)
    noise: dict[str, Noise] = field(default_factory=dict)

    def quantize(self, mean_squares: Mapping[str, torch.Tensor]) -> None:
        """Make the layers that the plan asks for."""
        for name, plan in self.plans.items():
            if plan.precision == "weight_only":
                self._set(name, plan.bits, mean_squares.get(self.paths[name]))

    def _set(self, name: str, bits: int, importance: torch.Tensor | None = None) -> None:
        linear = self.model.get_submodule(self.paths[name])
        assert isinstance(linear, nn.Linear)
        self.quantized[name] = self._layer(linear, bits, importance)
        self.noise[name] = Noise()
        self.noise[name].add(self.quantized[name].weight, linear.weight)

    def _layer(self, linear: nn.Linear, bits: int, importance: torch.Tensor | None = None) -> _Quantized:
        own = targets.find(self.target).own_weight(linear.weight.detach(), bits)
        if own is not None:
            return OwnFormLinear(linear, own)
        symmetric = self.options.symmetric_weights
        if bits == 4:
            return FourBitLinear(linear, self.options.group_size, symmetric, importance)
        return WeightOnlyLinear(linear, symmetric)

    def worst_first(self) -> list[str]:
        """Return the layers that nobody decided on and that can be finer, those that lose most first."""
        free = [name for name in self.noise if self.plans[name].reason == "default"]
        return sorted(free, key=lambda name: self.noise[name].sqnr)

    def build(self, finer: Collection[str] = ()) -> nn.Module:
        """Return the quantized model, with some layers finer: in eight bits instead of four, or in floats."""
        with quiet_torch():
            made = copy.deepcopy(self.model)
        for name, new in self.quantized.items():
            if name not in finer:
                made = _put(made, self.paths[name], new)
            elif self.plans[name].bits == 4:
                linear = self.model.get_submodule(self.paths[name])
                assert isinstance(linear, nn.Linear)
                made = _put(made, self.paths[name], self._layer(linear, 8))
        return made.eval().requires_grad_(False)

    def settle(self, sensitive: Sequence[str]) -> None:
        """Make these layers finer for good."""
        for name in sensitive:
            plan, sqnr = self.plans[name], self.noise[name].sqnr
            detail = (
                f"its weight's SQNR in int{plan.bits} is {sqnr:.1f} dB, and the model misses its accuracy"
            )
            if plan.bits == 4:
                self.plans[name] = replace(plan, bits=8, reason="sensitive", detail=detail)
                self._set(name, 8)
            else:
                self.plans[name] = replace(plan, precision="float", reason="sensitive", detail=detail)
                del self.quantized[name]

    def note(self) -> str:
        """Say which floats of the target's own hold the weights."""
        own = {layer.dtype for layer in self.quantized.values() if isinstance(layer, OwnFormLinear)}
        return f"{self.target} stores weights in {' and '.join(sorted(own))}" if own else ""

    def reports(self) -> tuple[LayerReport, ...]:
        """Return what is known of each layer, worst first."""
        rows = [
            LayerReport(
                plan.name, _OP, plan.precision, plan.reason,
                sqnr_isolated=self.noise[plan.name].sqnr if plan.name in self.noise else None,
            )
            for plan in self.plans.values()
        ]  # fmt: skip
        return tuple(sorted(rows, key=_sqnr))


def _sqnr(row: LayerReport) -> float:
    return math.inf if row.sqnr_isolated is None else row.sqnr_isolated


def _split(items: list[object], options: QuantizationOptions) -> tuple[list[object], list[object]]:
    """Return what says how much inputs matter, and what judges: a single item judges."""
    step = max(2, round(1 / options.hold_back))
    judging = [item for place, item in enumerate(items) if place % step == 0]
    return [item for place, item in enumerate(items) if place % step], judging


def _mean_squares(model: nn.Module, items: Sequence[object]) -> dict[str, torch.Tensor]:
    """Return, for each linear layer that items reach, the mean square of each of its inputs."""
    totals: dict[str, torch.Tensor] = {}
    if not items:
        return totals
    with quiet_torch():
        copied = copy.deepcopy(model)  # hooks are never put into the caller's model

    def watch(path: str, linear: nn.Linear) -> None:
        def add(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            squares = args[0].detach().float().reshape(-1, linear.in_features).square().mean(0)
            totals[path] = totals.get(path, torch.zeros(())) + squares / len(items)

        linear.register_forward_pre_hook(add)

    for path, module in copied.named_modules():
        if type(module) is nn.Linear:
            watch(path, module)
    with torch.no_grad():
        for item in items:
            args, kwargs = call_of(item)
            copied(*args, **kwargs)
    return totals


def _plans(
    model: nn.Module, layers: Sequence[Layer], options: QuantizationOptions, name: str, target: str
) -> dict[str, LayerPlan]:
    has_groups = targets.find(target).own_weight(torch.zeros(1, 1), options.bits) is None
    choices = overridden(layers, options.overrides, name)
    embedded = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    given = {plan.name: plan for plan in options.plan.layers} if options.plan is not None else {}
    for unknown in set(given) - {layer.name for layer in layers}:
        raise QuantizationError(
            f"the plan names the layer {unknown!r}, which the model has not",
            where=name,
            remedy=nearest(unknown, [layer.name for layer in layers]),
        )
    found = {}
    for layer in layers:
        plan = LayerPlan(layer.name, layer.op, "weight_only", bits=options.bits)
        if layer.name in given and given[layer.name] != plan:
            plan = given[layer.name]
            if plan.reason == "default":
                plan = replace(plan, reason="kept_by_option", detail="by the plan")
        if layer.name in choices:
            precision, pattern = choices[layer.name]
            detail = f"by the override {pattern!r}"
            plan = replace(plan, precision=precision, reason="kept_by_option", detail=detail)
        linear = model.get_submodule(layer.node)
        assert isinstance(linear, nn.Linear)
        found[layer.name] = _possible(plan, linear, options, has_groups, id(linear.weight) in embedded, name)
    return found


def _possible(
    plan: LayerPlan,
    linear: nn.Linear,
    options: QuantizationOptions,
    has_groups: bool,
    is_embedded: bool,
    where: str,
) -> LayerPlan:
    """Return a layer's plan as far as it can be followed, with the reason."""
    if plan.precision == "int8":
        raise QuantizationError(
            f"{plan.name} is to be int8", where=where, remedy='use method="ptq", or weight_only for it'
        )
    if plan.precision == "float":
        return plan
    if is_embedded:
        detail = "its weight is that of an embedding, which stays in floats"
        return replace(plan, precision="float", reason="not_supported", detail=detail)
    if not bool(linear.weight.isfinite().all()):
        detail = "its weight is not finite"
        return replace(plan, precision="float", reason="not_supported", detail=detail)
    if has_groups and plan.bits == 4 and linear.in_features % options.group_size:
        detail = f"its {linear.in_features} inputs do not divide into groups of {options.group_size}"
        return replace(plan, bits=8, reason="not_supported", detail=detail)
    return plan


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

"""Weights in eight or four bits, arithmetic in floats: layers of a copy of the model are replaced.

The copy stays the model's own class, so that whatever the model can do, such as `generate`, it can too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import islice

import torch
from torch import nn

from torchport import targets
from torchport.errors import QuantizationError
from torchport.quantization.budget import Outcome, count_sensitive, outcome_of, score_of
from torchport.quantization.calibration import Progress, call_of, no_progress
from torchport.quantization.noise import Noise
from torchport.quantization.options import AccuracyBudget, QuantizationOptions
from torchport.quantization.own_weights import OwnWeightQuantization
from torchport.quantization.quantized_graph import weight_bytes
from torchport.quantization.quantized_model import QuantizedModel
from torchport.quantization.weight_plans import LINEAR, find_weight_layers, plans_of
from torchport.quantization.weight_quantization import WeightQuantization
from torchport.quantization.weight_speed import WeightSpeed, time_weights
from torchport.records.quantization import QuantizationPlan, QuantizationReport
from torchport.structure import flatten


def quantize_weights(
    model: nn.Module,
    data: Iterable[object],
    budget: AccuracyBudget,
    options: QuantizationOptions,
    target: str,
    name: str,
    *,
    speed: bool = True,
    progress: Progress = no_progress,
) -> QuantizedModel:
    """Return a copy of a model whose linear layers and embeddings have their weights in eight or four bits.

    Args:
        model: the model.
        data: inputs to judge by; there may be none. With four bits weights are fitted to most of them, and
            the others judge.
        budget: what must be kept.
        options: the bits, groups and symmetry of weights, the overrides, a plan.
        target, name: for the records.
        speed: whether the model stays in floats if it is faster so on this machine; needs data for a call.
        progress: told of each layer.

    Raises:
        QuantizationError: it has no such layer, an override does not fit, or the accuracy cannot be kept.
    """
    if model.training:
        raise QuantizationError("the model is in training mode", where=name, remedy="call model.eval() first")
    has_own_form = targets.find(target).own_weight(torch.zeros(1, 1), options.bits) is not None
    layers = [each for each in find_weight_layers(model) if each.op == LINEAR or not has_own_form]
    if not layers:
        raise QuantizationError("it has no linear layer or embedding", where=name, remedy='use method="ptq"')
    items = list(islice(data, options.samples))
    fitting, judging = _split(items, options) if options.bits == 4 and not has_own_form else ([], items)
    plans = plans_of(model, layers, options, name, not has_own_form)
    made = WeightQuantization(model, layers, plans, options)
    if has_own_form:
        made = OwnWeightQuantization(target, model, layers, plans, options)
    fitted_to = made.quantize(fitting, progress)
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
    measured = WeightSpeed()
    if speed and items and made.quantized:
        measured = time_weights(model, result, call_of(items[0]), target)
        if measured.is_slower:
            made.put_back(measured.detail)
            result, outcome = made.build(), None if outcome is None else judge(())
    results = _compare(model, result, judging)
    report = QuantizationReport(
        model=name,
        method="weight_only",
        target=target,
        layers=made.reports(),
        calibrated_on=fitted_to,
        judged_on=len(judging),
        pcc=results.pcc if judging else None,
        sqnr=results.sqnr if judging else None,
        score_float=score_float,
        score=outcome.value if outcome is not None and score_float is not None else None,
        bytes_float=weight_bytes(model),
        bytes=weight_bytes(result),
        seconds_float=measured.seconds_float,
        seconds=measured.seconds,
        note="; ".join(filter(None, (made.note(), measured.note))),
    )
    plan = QuantizationPlan(name, "weight_only", target, tuple(made.plans.values()))
    return QuantizedModel(result, plan, report)


def _split(items: list[object], options: QuantizationOptions) -> tuple[list[object], list[object]]:
    """Return what weights are fitted to, and what judges: a single item judges."""
    step = max(2, round(1 / options.hold_back))
    judging = [item for place, item in enumerate(items) if place % step == 0]
    return [item for place, item in enumerate(items) if place % step], judging


def _compare(model: nn.Module, made: nn.Module, items: Iterable[object]) -> Noise:
    """Return how far the results of two models are apart."""
    noise = Noise()
    with torch.no_grad():
        for item in items:
            ours, theirs = (flatten(_call(each, item)).leaves for each in (made, model))
            for one, other in zip(ours, theirs, strict=True):
                if other.is_floating_point():
                    noise.add(one, other)
    return noise


def _call(model: nn.Module, item: object) -> object:
    """Call a model; inputs are copied, since a model may write to them."""
    args, kwargs = copy.deepcopy(call_of(item))
    return model(*args, **kwargs)

"""Weights in eight or four bits, arithmetic in floats: layers of a copy of the model are replaced.

The copy is of the model's own class, so it supports whatever the model does, such as `generate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import nn

from torchport import targets
from torchport.errors import QuantizationError
from torchport.quantization.budget import Outcome, count_sensitive, outcome_of, score_of
from torchport.quantization.calibration import Progress, call_of, no_progress
from torchport.quantization.model_runs import (
    call,
    check_evaluating,
    naming_failing_item,
    result_tensors,
    stand_in,
)
from torchport.quantization.native_format_weights import OwnWeightQuantization
from torchport.quantization.noise import ResultNoise
from torchport.quantization.options import AccuracyBudget, QuantizationOptions
from torchport.quantization.quantized_graph import weight_bytes
from torchport.quantization.quantized_model import QuantizedModel
from torchport.quantization.weight_plans import LINEAR, find_weight_layers, plans_of
from torchport.quantization.weight_quantization import WeightQuantization
from torchport.quantization.weight_speed import WeightSpeed, time_weights
from torchport.records.quantization import QuantizationPlan, QuantizationReport


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
    """Return a copy of a model whose linear layers and embeddings store their weights in eight or four bits.

    Args:
        model: the model.
        data: inputs to evaluate the result on, possibly none. With four bits, weights are fitted to most of
            them, and the rest evaluate.
        budget: the accuracy to keep.
        options: the bits, groups and symmetry of weights, the overrides, a plan.
        target: the target that the weights are quantized for and timed on.
        name: the model's name in records and messages.
        speed: whether the model stays in floats if that is faster on this machine; needs data for a call.
        progress: called for each layer.

    Raises:
        QuantizationError: the model has no such layer, an override matches none, or the accuracy cannot be
            kept.
    """
    check_evaluating(model, name)
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
    alone = stand_in(model)
    with naming_failing_item(lambda item: call(alone, *call_of(items[item])), range(len(items)), name):
        fitted_to = made.quantize(fitting, progress)
        judge = _Judge(model, made, judging, budget, name)
        judge.keep_accuracy("in eight bits" if options.bits == 4 else "in floats")
        measured = WeightSpeed()
        if speed and items and made.quantized:
            measured = _keep_speed(model, made, call_of(items[0]), target)
        result, score = made.build(), judge.score()
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
        score_float=judge.score_float,
        score=score,
        bytes_float=weight_bytes(model),
        bytes=weight_bytes(result),
        seconds_float=measured.seconds_float,
        seconds=measured.seconds,
        note="; ".join(filter(None, (made.note(), measured.note))),
    )
    plan = QuantizationPlan(name, "weight_only", target, tuple(made.plans.values()))
    return QuantizedModel(result, plan, report)


class _Judge:
    """Judges the model being quantized, and gives its worst layers a higher precision.

    Args:
        model: the caller's model.
        made: the model being quantized.
        items: inputs to judge by, possibly none.
        budget: the accuracy to keep.
        name: the model's name, for messages.
    """

    def __init__(
        self,
        model: nn.Module,
        made: WeightQuantization,
        items: Sequence[object],
        budget: AccuracyBudget,
        name: str,
    ) -> None:
        self._model, self._made, self._items, self._budget, self._name = model, made, items, budget, name
        self.score_float: float | None = None
        if budget.evaluate is not None:
            self.score_float = score_of(budget, stand_in(model), "float", name)

    def keep_accuracy(self, fallback: str) -> None:
        """Raise the precision of the worst layers until the budget is met.

        Args:
            fallback: the higher precision, in words.

        Raises:
            QuantizationError: it cannot be met, or the evaluation function fails.
        """
        if self._items or self.score_float is not None:
            worst_first = self._made.worst_first()
            count, _ = count_sensitive(worst_first, self._outcome, self._name, fallback)
            self._made.settle(worst_first[:count])

    def score(self) -> float | None:
        """Return the current model's score, or None without an evaluation function."""
        return None if self.score_float is None else self._outcome(()).value

    def _outcome(self, finer: Sequence[str]) -> Outcome:
        if self.score_float is not None:
            score = score_of(self._budget, self._made.build(finer), "quantized", self._name)
            return Outcome(score, self.score_float - self._budget.max_drop, "the score is")
        found = _compare(self._model, self._made.build(finer), self._items)
        return outcome_of(self._budget, found, self._name)


def _keep_speed(
    model: nn.Module,
    made: WeightQuantization,
    given: tuple[tuple[object, ...], dict[str, object]],
    target: str,
) -> WeightSpeed:
    """Put the model back to floats if quantized weights make it slower; return the timings of the result."""
    measured = time_weights(stand_in(model), stand_in(made.build()), given, target)
    if not measured.is_slower:
        return measured
    made.put_back(measured.detail)
    if made.quantized:  # an option requires some to be: this is not the model that was timed
        return time_weights(stand_in(model), stand_in(made.build()), given, target)
    return replace(measured, seconds=measured.seconds_float)


def _split(items: list[object], options: QuantizationOptions) -> tuple[list[object], list[object]]:
    """Return the items that weights are fitted to, and those that judge; a single item judges."""
    step = max(2, round(1 / options.hold_back))
    judging = [item for place, item in enumerate(items) if place % step == 0]
    return [item for place, item in enumerate(items) if place % step], judging


def _compare(model: nn.Module, made: nn.Module, items: Iterable[object]) -> ResultNoise:
    """Return the noise of a quantized model's results compared with the original's."""
    noise = ResultNoise()
    pair = stand_in(made), stand_in(model)
    for item in items:
        ours, theirs = (result_tensors(call(each, *call_of(item))) for each in pair)
        noise.add(ours, theirs)
    return noise

"""A graph that is being quantized: plans, measures and judges the precision of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import fx, nn

from torchport.errors import QuantizationError, nearest
from torchport.quantization.budget import Outcome, count_sensitive, outcome_of, score_of
from torchport.quantization.calibration import CalibrationData, Progress
from torchport.quantization.decisions import Decisions
from torchport.quantization.float_graph import FloatGraph
from torchport.quantization.layers import Layer, find_layers, overridden, tidy_recurrent
from torchport.quantization.measure import ExpectedResults, Measures, measure
from torchport.quantization.model_runs import naming_failing_item, stand_in
from torchport.quantization.options import AccuracyBudget, QuantizationOptions
from torchport.quantization.quantized_graph import quantized_copy
from torchport.quantization.quantized_model import GraphCall
from torchport.records.quantization import (
    HALF_PRECISIONS,
    LayerPlan,
    Precision,
    PrecisionReason,
    QuantizationPlan,
)


@dataclass(slots=True, eq=False)
class GraphQuantization:
    """A model being quantized: its graph, the decisions of the calibration, and each layer's plan.

    Args:
        model: the caller's model.
        floats: its graph.
        decisions: the decisions of the calibration.
        layers: the layers that can compute in eight bits.
        plans: each layer's plan, by the layer's name.
        fallback: the precision that layers with weights go back to.
        score_float: the score of the caller's model, if there is an evaluation function.
        outcome: the accuracy that the quantized model reaches.
    """

    model: nn.Module
    floats: FloatGraph
    decisions: Decisions
    layers: list[Layer]
    plans: dict[str, LayerPlan]
    fallback: Precision = "float"
    score_float: float | None = None
    outcome: Outcome | None = None

    def graph(self, in_floats: Sequence[str] = ()) -> fx.GraphModule:
        """Return the quantized graph, with additional layers in floats."""
        precisions: dict[str, Precision] = {name: plan.precision for name, plan in self.plans.items()}
        precisions |= {name: self._finer(name) for name in in_floats}
        return quantized_copy(self.floats.graph_module, self.decisions, self.layers, precisions)

    def module(self, in_floats: Sequence[str] = ()) -> GraphCall:
        """Return the quantized graph as a module that is called like the model."""
        return GraphCall(self.graph(in_floats), self.floats.call).eval().requires_grad_(False)

    def put_back(self, name: str, reason: PrecisionReason, detail: str) -> None:
        """Put a layer back to floats: to half precision, if that was allowed and it is not for speed."""
        precision = "float" if reason == "slower" else self._finer(name)
        bits = 16 if precision in HALF_PRECISIONS else self.plans[name].bits
        self.plans[name] = replace(
            self.plans[name], precision=precision, reason=reason, detail=detail, bits=bits
        )

    def _finer(self, name: str) -> Precision:
        """Return the fallback precision of a layer."""
        has_weight = any(layer.name == name and layer.has_weight for layer in self.layers)
        return self.fallback if has_weight else "float"

    @property
    def is_float(self) -> bool:
        """Whether all layers are in float32."""
        return all(plan.precision == "float" for plan in self.plans.values())

    def free(self) -> list[str]:
        """Return the layers that no option or measurement has fixed: they may go back to floats."""
        return [name for name, plan in self.plans.items() if plan.reason == "default"]


def plan_layers(
    model: nn.Module, floats: FloatGraph, decisions: Decisions, options: QuantizationOptions
) -> GraphQuantization:
    """Find the layers; every one computes in eight bits unless an option says otherwise.

    Args:
        model: the caller's model.
        floats: its graph.
        decisions: the tensors to quantize, and how.
        options: the overrides, and a plan.

    Raises:
        QuantizationError: there is no layer to quantize, or an override or the plan does not fit the layers.
    """
    name = floats.name
    tidy_recurrent(floats.graph_module.graph, decisions)
    layers = find_layers(floats.graph_module.graph, decisions)
    if not layers:
        raise QuantizationError(
            "it has no layer that can be quantized", where=name, remedy="run it unquantized"
        )
    plans = {layer.name: LayerPlan(layer.name, layer.op, "int8") for layer in layers}
    if options.plan is not None:
        _check_plan(options.plan, plans, name)
        for given in options.plan.layers:
            reason = (
                "kept_by_option" if given.reason == "default" and given.precision != "int8" else given.reason
            )
            plans[given.name] = replace(given, reason=reason)
    for layer, (precision, pattern) in overridden(layers, options.overrides, name).items():
        detail = f"by the override {pattern!r}"
        plans[layer] = replace(plans[layer], precision=precision, reason="kept_by_option", detail=detail)
    for layer_ in layers:
        precision = plans[layer_.name].precision
        if precision in HALF_PRECISIONS:
            plans[layer_.name] = replace(plans[layer_.name], bits=16)
        if precision in ("weight_only", *HALF_PRECISIONS) and not layer_.has_weight:
            raise QuantizationError(
                f"{layer_.name} has no weight, so it cannot be {precision}",
                where=name,
                remedy="choose float or int8",
            )
    return GraphQuantization(model, floats, decisions, layers, plans, options.half or "float")


def _check_plan(plan: QuantizationPlan, plans: dict[str, LayerPlan], where: str) -> None:
    given = {layer.name for layer in plan.layers}
    for name in given - set(plans):
        raise QuantizationError(
            f"the plan names the layer {name!r}, which the model does not have", where=where,
            remedy=nearest(name, plans),
        )  # fmt: skip
    for name in set(plans) - given:
        raise QuantizationError(
            f"the plan does not name the layer {name!r}", where=where, remedy="use a plan of this model"
        )


def measure_layers(quantization: GraphQuantization, data: CalibrationData, progress: Progress) -> Measures:
    """Measure every layer under the current plan."""
    floats = quantization.floats
    forward = floats.graph_module.forward
    with naming_failing_item(lambda item: forward(*data.load(item)), data.held_back, floats.name):
        return measure(
            floats.graph_module,
            quantization.graph(),
            quantization.decisions,
            quantization.layers,
            floats.judged,
            data,
            progress,
        )


def keep_accuracy(
    quantization: GraphQuantization,
    budget: AccuracyBudget,
    measures: Measures,
    data: CalibrationData,
    progress: Progress,
) -> None:
    """Put the worst layers back to floats until the budget is met.

    Raises:
        QuantizationError: it cannot be met, or the evaluation function fails.
    """
    floats = quantization.floats
    name = floats.name
    expected = ExpectedResults(floats.graph_module, floats.judged, data)
    tries = 0
    if budget.evaluate is not None:
        quantization.score_float = score_of(budget, stand_in(quantization.model), "float", name)

    def judge(in_floats: Sequence[str]) -> Outcome:
        nonlocal tries
        tries += 1
        progress("Judging", tries, None)
        if quantization.score_float is not None:
            score = score_of(budget, quantization.module(in_floats), "quantized", name)
            return Outcome(score, quantization.score_float - budget.max_drop, "the score is")
        if not in_floats:
            return outcome_of(budget, measures.results, name)
        return outcome_of(budget, expected.compare(quantization.graph(in_floats)), name)

    worst_first = sorted(quantization.free(), key=lambda layer: measures.layers[layer].isolated.sqnr)
    try:
        count, quantization.outcome = count_sensitive(worst_first, judge, name)
    except QuantizationError:
        if quantization.fallback == "float":
            raise
        quantization.fallback = "float"  # half precision is not enough
        count, quantization.outcome = count_sensitive(worst_first, judge, name)
    for layer in worst_first[:count]:
        sqnr = measures.layers[layer].isolated.sqnr
        detail = f"in int8 its SQNR is {sqnr:.1f} dB on held-back data, and the model misses its accuracy"
        quantization.put_back(layer, "sensitive", detail)


def rescore(quantization: GraphQuantization, budget: AccuracyBudget) -> None:
    """Score the model under its current plan with the evaluation function, if there is one.

    Raises:
        QuantizationError: the evaluation function fails.
    """
    if budget.evaluate is not None and quantization.outcome is not None:
        score = score_of(budget, quantization.module(), "quantized", quantization.floats.name)
        quantization.outcome = replace(quantization.outcome, value=score)

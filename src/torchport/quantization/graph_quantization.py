"""A model in the making, as a graph: what each layer is to compute in, measured and judged."""

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
from torchport.quantization.model_runs import failing_item_named, stand_in
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
    """A model in the making: its graph, what the calibration decided, and what each layer is to compute in.

    Args:
        model: the caller's own.
        floats: its graph.
        decisions: what the calibration decided.
        layers: the layers that can compute in eight bits.
        plans: what each computes in, by its name.
        fallback: what layers with weights go back to.
        score_float: what the evaluation function says of the caller's model.
        outcome: what the quantized one reaches.
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
        """Return the quantized graph, with some more layers in floats."""
        precisions: dict[str, Precision] = {name: plan.precision for name, plan in self.plans.items()}
        precisions |= {name: self._finer(name) for name in in_floats}
        return quantized_copy(self.floats.graph_module, self.decisions, self.layers, precisions)

    def module(self, in_floats: Sequence[str] = ()) -> GraphCall:
        """Return the same as a module that is called as the model is."""
        return GraphCall(self.graph(in_floats), self.floats.call).eval().requires_grad_(False)

    def put_back(self, name: str, reason: PrecisionReason, detail: str) -> None:
        """Have a layer compute in floats: of half precision, if that was allowed and it is not for speed."""
        precision = "float" if reason == "slower" else self._finer(name)
        bits = 16 if precision in HALF_PRECISIONS else self.plans[name].bits
        self.plans[name] = replace(
            self.plans[name], precision=precision, reason=reason, detail=detail, bits=bits
        )

    def _finer(self, name: str) -> Precision:
        """Return what a layer computes in that must not compute in eight bits."""
        has_weight = any(layer.name == name and layer.has_weight for layer in self.layers)
        return self.fallback if has_weight else "float"

    @property
    def is_float(self) -> bool:
        """Whether no layer is quantized any more."""
        return all(plan.precision == "float" for plan in self.plans.values())

    def free(self) -> list[str]:
        """Return the layers that nobody decided on: they may go back to floats."""
        return [name for name, plan in self.plans.items() if plan.reason == "default"]


def plan_layers(
    model: nn.Module, floats: FloatGraph, decisions: Decisions, options: QuantizationOptions
) -> GraphQuantization:
    """Find the layers; every one computes in eight bits unless an option says otherwise.

    Args:
        model: the caller's own.
        floats: its graph.
        decisions: what is to be rounded, and how.
        options: the overrides, and a plan.

    Raises:
        QuantizationError: there is no layer, or an option does not fit them.
    """
    name = floats.name
    tidy_recurrent(floats.graph_module.graph, decisions)
    layers = find_layers(floats.graph_module.graph, decisions)
    if not layers:
        raise QuantizationError(
            "it has no layer that can be quantized", where=name, remedy="run it as it is, in floats"
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
                f"{layer_.name} has no weight, and is to be {precision}",
                where=name,
                remedy="choose float or int8",
            )
    return GraphQuantization(model, floats, decisions, layers, plans, options.half or "float")


def _check_plan(plan: QuantizationPlan, plans: dict[str, LayerPlan], where: str) -> None:
    given = {layer.name for layer in plan.layers}
    for name in given - set(plans):
        raise QuantizationError(
            f"the plan names the layer {name!r}, which the model has not", where=where,
            remedy=nearest(name, plans),
        )  # fmt: skip
    for name in set(plans) - given:
        raise QuantizationError(
            f"the plan does not name the layer {name!r}", where=where, remedy="take a plan of this model"
        )


def measure_layers(quantization: GraphQuantization, data: CalibrationData, progress: Progress) -> Measures:
    """Measure every layer, as the plan has it now."""
    floats = quantization.floats
    forward = floats.graph_module.forward
    with failing_item_named(lambda item: forward(*data.load(item)), data.held_back, floats.name):
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
    """Put the worst layers back to floats until the budget holds.

    Raises:
        QuantizationError: it cannot hold, or the evaluation function fails.
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
    """Have the evaluation function, if there is one, judge the model as its plan is now.

    Raises:
        QuantizationError: the evaluation function fails.
    """
    if budget.evaluate is not None and quantization.outcome is not None:
        score = score_of(budget, quantization.module(), "quantized", quantization.floats.name)
        quantization.outcome = replace(quantization.outcome, value=score)

"""Finds how many of the worst layers must stay in floats to meet the accuracy budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from torchport.errors import QuantizationError, one_line
from torchport.quantization.noise import ResultNoise
from torchport.quantization.options import AccuracyBudget


@dataclass(frozen=True, slots=True)
class Outcome:
    """The accuracy that a model reaches.

    Args:
        value: the score, PCC or SQNR.
        wanted: the minimum.
        what: the metric, in words.
    """

    value: float
    wanted: float
    what: str

    @property
    def holds(self) -> bool:
        """Whether the model reaches the minimum."""
        return self.value >= self.wanted

    def __str__(self) -> str:
        """Return the value and the minimum, in words."""
        return f"{self.what} {self.value:.4g}, and {self.wanted:.4g} is required"


def score_of(budget: AccuracyBudget, model: nn.Module, which: str, where: str) -> float:
    """Return a model's score from the evaluation function.

    Raises:
        QuantizationError: the function raises, or returns something other than a finite number.
    """
    assert budget.evaluate is not None
    try:
        score = float(budget.evaluate(model))
    except Exception as error:  # user code may raise anything
        raise QuantizationError(
            f"the evaluation function raises on the {which} model: {one_line(error)}",
            where=where,
            remedy="it is called with the model, and must return a number, the higher the better",
        ) from error
    if not math.isfinite(score):
        raise QuantizationError(
            f"the evaluation function returns {score} for the {which} model",
            where=where,
            remedy="it must return a finite number, the higher the better",
        )
    return score


def outcome_of(budget: AccuracyBudget, noise: ResultNoise, where: str) -> Outcome:
    """Judge results by their PCC or SQNR.

    Raises:
        QuantizationError: there is nothing to compare: the results have no finite floating-point values.
    """
    if noise.count == 0 and noise.error == 0.0:
        raise QuantizationError(
            "the model's results on the calibration data have no finite floating-point values to compare",
            where=where,
            remedy="check the data; for other results give accuracy=AccuracyBudget(evaluate=...)",
        )
    if budget.pcc is not None:
        return Outcome(noise.pcc, budget.pcc, "the PCC is")
    assert budget.sqnr is not None
    return Outcome(noise.sqnr, budget.sqnr, "the SQNR in decibels is")


def count_sensitive(
    worst_first: Sequence[str],
    judge: Callable[[Sequence[str]], Outcome],
    where: str,
    fallback: str = "in floats",
) -> tuple[int, Outcome]:
    """Return how many of the worst layers need a higher precision, such as floats, and the outcome with them.

    Accuracy is taken to grow with the number of such layers, so a binary search needs to judge few models.

    Args:
        worst_first: the layers' names.
        judge: judges the model with these layers in the higher precision.
        where: the model's name.
        fallback: the higher precision, in words.

    Raises:
        QuantizationError: the budget is missed even with all layers in the higher precision.
    """
    best = judge(())
    if best.holds:
        return 0, best
    few, enough = 0, len(worst_first)
    best = judge(worst_first)
    if not best.holds:
        raise QuantizationError(
            f"the accuracy cannot be kept: with all layers {fallback} {best}",
            where=where,
            remedy="lower the accuracy budget, or check the overrides and the evaluation function",
        )
    while enough - few > 1:
        middle = (few + enough) // 2
        outcome = judge(worst_first[:middle])
        if outcome.holds:
            enough, best = middle, outcome
        else:
            few = middle
    return enough, best

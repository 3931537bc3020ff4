"""Finds how many of the worst layers must stay in floats for the accuracy that is asked for."""

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
    """What a model reaches.

    Args:
        value: the score, PCC or SQNR.
        wanted: what it must reach.
        what: which of them it is.
    """

    value: float
    wanted: float
    what: str

    @property
    def holds(self) -> bool:
        """Whether it does."""
        return self.value >= self.wanted

    def __str__(self) -> str:
        """Say it in a few words."""
        return f"{self.what} {self.value:.4g}, and {self.wanted:.4g} is asked for"


def score_of(budget: AccuracyBudget, model: nn.Module, which: str, where: str) -> float:
    """Return what the evaluation function says of a model.

    Raises:
        QuantizationError: it raises, or gives something other than a finite number.
    """
    assert budget.evaluate is not None
    try:
        score = float(budget.evaluate(model))
    except Exception as error:  # a user's own code may raise anything
        raise QuantizationError(
            f"the evaluation function raises on the {which} model: {one_line(error)}",
            where=where,
            remedy="it is called with the model, and returns a number, the higher the better",
        ) from error
    if not math.isfinite(score):
        raise QuantizationError(
            f"the evaluation function gives {score} for the {which} model",
            where=where,
            remedy="it must give a finite number, the higher the better",
        )
    return score


def outcome_of(budget: AccuracyBudget, noise: ResultNoise, where: str) -> Outcome:
    """Judge results by their PCC or SQNR.

    Raises:
        QuantizationError: there is nothing to judge: the results have no finite floating-point number.
    """
    if noise.count == 0 and noise.error == 0.0:
        raise QuantizationError(
            "the model's results on the calibration data have no finite floating-point number to judge by",
            where=where,
            remedy="look at the data; for other results give accuracy=AccuracyBudget(evaluate=...)",
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
    """Return how many of the worst layers must be finer, in floats for one, and what is reached then.

    Few models are judged: the more layers are finer, the better, so halving finds the number.

    Args:
        worst_first: the layers' names.
        judge: judges the model with these layers finer.
        where: the model's name.
        fallback: what the worst layers become, in words.

    Raises:
        QuantizationError: not even with all of them is it reached.
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
            remedy="ask for less, or look at the overrides and at the evaluation function",
        )
    while enough - few > 1:
        middle = (few + enough) // 2
        outcome = judge(worst_first[:middle])
        if outcome.holds:
            enough, best = middle, outcome
        else:
            few = middle
    return enough, best

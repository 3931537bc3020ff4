"""The records of a survey, aggregated over its models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torchport.records import Record, SurveyStatus
from torchport.report.problem import Problem

Direction = Literal["fw", "bw"]
DIRECTIONS: tuple[Direction, ...] = ("fw", "bw")
"""The forward and the backward graphs, as raw files and reports name them."""

Side = Literal["input", "output"]
SIDES: tuple[Side, ...] = ("input", "output")


@dataclass(frozen=True, slots=True)
class SurveyModel(Record):
    """One model of a survey.

    Args:
        model: its name.
        status: `ok`, or how it failed; `error`: why, empty if it is ok.
        forward_ops, backward_ops: how many ops its graphs have; None if that direction was not recorded.
        forward_unique, backward_unique: how many distinct ops those are.
        graphs: the number of its graphs in both directions.
        flops: the FLOPs of all its ops for which they are known.
        seconds: how long its survey took; None if it has no row.
        peak_bytes: the peak memory of its process; None if it has no row.
    """

    model: str
    status: SurveyStatus
    error: str = ""
    forward_ops: int | None = None
    forward_unique: int | None = None
    backward_ops: int | None = None
    backward_unique: int | None = None
    graphs: int = 0
    flops: int = 0
    seconds: float | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class OpCount(Record):
    """How often an op occurs in the graphs of a direction, in how many models, and its known FLOPs."""

    direction: Direction
    op: str
    count: int
    models: int
    flops: int


@dataclass(frozen=True, slots=True)
class SizeCount(Record):
    """How many calls of an op have inputs, or outputs, of a given total size; `bytes` is None if unknown."""

    direction: Direction
    op: str
    side: Side
    bytes: int | None
    count: int


@dataclass(frozen=True, slots=True)
class ArgumentCount(Record):
    """How often an argument of an op has a value.

    Args:
        direction: the graphs' direction.
        op: the op's name as torch spells it.
        name: `arg0`, `arg1`… for a positional argument, the keyword for others.
        value: the value as JSON, or `not_jsonable`.
        count: the number of calls.
    """

    direction: Direction
    op: str
    name: str
    value: str
    count: int


@dataclass(frozen=True, slots=True)
class ModelUse(Record):
    """How often an op occurs in a model's graphs, of both directions."""

    model: str
    op: str
    count: int


@dataclass(frozen=True, slots=True)
class Survey(Record):
    """The ops that the models of a survey use.

    Args:
        models: one row for each model, sorted by name.
        ops: the ops of each direction, most frequent first.
        sizes: the distributions of their sizes in bytes, smallest first and unknown ones last.
        arguments: the values of their arguments: positional ones in order, then keywords by name; the
            values of each are sorted as text.
        problems: the files that could not be counted.
        usage: how often each model uses each op.
    """

    schema: ClassVar[str] = "torchport.survey/1"

    models: tuple[SurveyModel, ...]
    ops: tuple[OpCount, ...]
    sizes: tuple[SizeCount, ...]
    arguments: tuple[ArgumentCount, ...]
    problems: tuple[Problem, ...]
    usage: tuple[ModelUse, ...] = ()

    def ops_of(self, direction: Direction) -> tuple[OpCount, ...]:
        """Return the ops of a direction, most frequent first."""
        return tuple(op for op in self.ops if op.direction == direction)

    @property
    def failed(self) -> tuple[SurveyModel, ...]:
        """The models that are not ok."""
        return tuple(model for model in self.models if model.status != "ok")

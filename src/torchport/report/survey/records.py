"""What a survey says, added up over its models."""

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
        forward_ops, backward_ops: how many ops its graphs have; nothing if that direction was not recorded.
        forward_unique, backward_unique: how many different ops those are.
        graphs: how many graphs it has, of both directions.
        flops: of all its ops whose FLOPs are known.
        seconds: how long its survey took; nothing if no row says.
        peak_bytes: the most memory its process held; nothing if no row says.
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
    """How often an op appears in the graphs of a direction, in how many models, and its known FLOPs."""

    direction: Direction
    op: str
    count: int
    models: int
    flops: int


@dataclass(frozen=True, slots=True)
class SizeCount(Record):
    """How many calls of an op have inputs, or outputs, of so many bytes in all; nothing if unknown."""

    direction: Direction
    op: str
    side: Side
    bytes: int | None
    count: int


@dataclass(frozen=True, slots=True)
class ArgumentCount(Record):
    """How often an argument of an op has a value.

    Args:
        direction: of the graphs.
        op: as torch spells it.
        name: `arg0`, `arg1`… for a positional argument, the keyword for another.
        value: JSON, or `not_jsonable`.
        count: in how many calls.
    """

    direction: Direction
    op: str
    name: str
    value: str
    count: int


@dataclass(frozen=True, slots=True)
class ModelUse(Record):
    """How often a model's graphs, of both directions, have an op."""

    model: str
    op: str
    count: int


@dataclass(frozen=True, slots=True)
class Survey(Record):
    """What ops the models of a survey use.

    Args:
        models: one row each, by name.
        ops: the ops of each direction, most frequent first.
        sizes: the distributions of their bytes, smallest first and unknown ones last.
        arguments: the values of their arguments: positional ones in order, then keywords by name; the
            values of each by their text.
        problems: the files that could not be counted.
        usage: which model uses which op.
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

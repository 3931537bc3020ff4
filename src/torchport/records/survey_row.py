"""The outcome of a survey for one model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torchport.records.record import Record

SurveyStatus = Literal["ok", "raised", "timeout", "memory", "crashed"]


@dataclass(frozen=True, slots=True)
class SurveyRow(Record):
    """One model of a survey whose op records were taken: `ok`, or why there are none.

    Args:
        model: its name as it was given.
        status: `ok`; `raised` an error; ran past its `timeout` or its `memory` limit; its process `crashed`.
        error: why it is not ok, in one line with its remedy; empty if it is.
        forward_ops, backward_ops: how many ops its graphs have; nothing if that direction was not recorded.
        graphs: how many graphs it has, of both directions.
        raw: the raw file's name in `raw/`; empty if there is none.
        seconds: how long it took, loading the model included.
        peak_bytes: the peak memory of its process.
        settings: what it was surveyed with, so that a survey with other settings does not take it for done.
        note: what is not as usual, such as a run on real values and why; else empty.
        versions: of python, torch, torchport and the model's library; of a model's own file the digest.
    """

    schema: ClassVar[str] = "torchport.survey_row/1"

    model: str
    status: SurveyStatus
    error: str = ""
    forward_ops: int | None = None
    backward_ops: int | None = None
    graphs: int = 0
    raw: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    note: str = ""

"""The outcome of a survey for one model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torchport.records.record import Record

SurveyStatus = Literal["ok", "raised", "timeout", "memory", "crashed"]


@dataclass(frozen=True, slots=True)
class SurveyRow(Record):
    """The outcome of recording one model's ops: `ok`, or why there are none.

    Args:
        model: the model's name as it was given.
        status: `ok`, or why not: it `raised` an error, exceeded its `timeout` or `memory` limit, or its
            process `crashed`.
        error: why it is not ok, in one line with a remedy; empty if it is.
        forward_ops, backward_ops: how many ops its graphs have; None if that direction was not recorded.
        graphs: the number of its graphs in both directions.
        raw: the raw file's name in `raw/`; empty if there is none.
        seconds: how long it took, loading the model included.
        peak_bytes: the peak memory of its process.
        settings: the settings of the survey; a survey with other settings records the model again.
        note: anything unusual, such as a run on real values and why; else empty.
        versions: the versions of Python, torch, torchport and the model's library, or the digest of the
            user's file that the model comes from.
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

"""The result of writing a model as code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class GeneratedCode(Record):
    """The result of writing a model as code.

    Args:
        model: the model's name.
        class_name: the name of its class in the code.
        code: the code.
        code_path: where it was written; empty if it was not.
        weights_path: where the weights were written; empty if they were not.
        classes: how many classes it has.
        lines: how many lines it has.
        nodes: how many calls were traced.
        verified: whether it was run and reproduced the model's results bit for bit.
        trace_time: how long tracing took, in seconds.
        code_time: how long writing the code took, in seconds, without verifying it.
    """

    schema: ClassVar[str] = "torchport.generated_code/1"

    model: str
    class_name: str
    code: str
    code_path: str
    weights_path: str
    classes: int
    lines: int
    nodes: int
    verified: bool
    trace_time: float
    code_time: float

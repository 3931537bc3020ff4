"""The result of compiling a model and comparing it with the original."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.comparison import Comparison
from torchport.records.coverage import Coverage
from torchport.records.record import Record
from torchport.records.tries import Tries

DEFAULT_TARGET = "openvino"  # the target if none is named


@dataclass(frozen=True, slots=True)
class BringUp(Record):
    """The result of compiling a model for a target, with its accuracy.

    Args:
        model: the model's name.
        target: the target that it was compiled for.
        coverage: which ops the target took, and why the others stay on the host.
        comparison: the compiled model's results compared with those of the original.
        compile_time: how long compiling took, in seconds.
        speed_trial_time: how much of that the speed trials took; those of `auto` are in `tries`.
        first_call_time: how long the compiled model's first call took, in seconds.
        simulated_time: if the device is only simulated, the estimated time of a call on it, in seconds.
        tries: the outcome for each engine, for the target `auto`.
    """

    schema: ClassVar[str] = "torchport.bring_up/1"

    model: str
    target: str
    coverage: Coverage
    comparison: Comparison
    compile_time: float
    first_call_time: float
    simulated_time: float | None = None
    tries: Tries | None = None
    speed_trial_time: float = 0.0

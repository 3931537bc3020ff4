"""A model that was compiled and compared with the one that it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.comparison import Comparison
from torchport.records.coverage import Coverage
from torchport.records.record import Record
from torchport.records.tries import Tries

DEFAULT_TARGET = "openvino"  # where a model is brought up if no target is named


@dataclass(frozen=True, slots=True)
class BringUp(Record):
    """What compiling a model for a target gave, and how far its results are off.

    Args:
        model, target: what was compiled for what.
        coverage: what the target took, and why the rest stays.
        comparison: the compiled model's results against the model's own.
        compile_time: how long compiling took, in seconds.
        speed_trial_time: how much of that the speed trials took; those of `auto` are in `tries`.
        first_call_time: how long the compiled model's first call took, in seconds.
        simulated_time: where the device is only simulated, how long a call would take on it, by an
            estimate, in seconds.
        tries: what came of each engine, for the target `auto`.
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

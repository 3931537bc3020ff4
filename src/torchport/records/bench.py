"""One row of the results table: a model before and after bringing it up on a target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torchport.records.comparison import PCC_THRESHOLD
from torchport.records.fallbacks import Fallbacks
from torchport.records.record import Record
from torchport.records.tries import Tries

Status = Literal["ok", "inaccurate", "failed"]


@dataclass(frozen=True, slots=True)
class BenchRecord(Record):
    """A model's times before and after compiling, with its coverage and accuracy.

    Times are medians of interleaved runs, in seconds, and exclude loading the model. Fields that were
    not reached before a failure are None.

    Args:
        model: the model's name.
        target: the target that it ran on.
        status: `ok` only if it ran and its accuracy meets the threshold.
        batch: the size of the first input's first dimension.
        ops_before, unique_before, ops_remain, unique_remain, transfers: as in `Coverage`.
        original_time: the time of one call of the original model.
        compiled_time: the time of one call of the compiled model.
        first_run_time: the time of compiling and the first call together.
        speed_trial_time: how much of compiling the speed trials took.
        pcc, pcc_threshold: the accuracy, and the least that is required.
        max_absolute: the largest absolute difference of any output.
        excess: if the PCC is below the threshold on a low-precision device, the ratio of that output's error
            to the error of storing the expected output in the device's dtype; up to 2 is accepted.
        runs: the number of runs of each model that the medians are taken over.
        simulated: whether the target was only simulated; `compiled_time` is then an estimate of a call's
            time on the device rather than a measurement.
        fallbacks: how many calls of the compiled model fell back to eager torch.
        first_token_time, tokens_per_second: for a model that generates, the seconds to the first new token
            and the rate of the others; its times above are those of all tokens together.
        builds: how many programs were built to generate.
        quantization: the method by which the model was quantized before compiling; empty if it was not.
        layers, layers_quantized: how many layers could be quantized, and how many were.
        size_ratio: the quantized weights' bytes divided by the float weights'.
        float_speedup: how many times faster it is than the float model on the same target, if timed.
        memory: by how many bytes compiling and generating increased the process's memory.
        error: why it failed.
        versions: the versions of Python, torch, torchport and the target's library.
        machine: the processor and the number of threads.
        tries: the outcome for each engine, for the target `auto`.
    """

    schema: ClassVar[str] = "torchport.bench/1"

    model: str
    target: str
    status: Status
    batch: int | None = None
    ops_before: int | None = None
    unique_before: int | None = None
    ops_remain: int | None = None
    unique_remain: int | None = None
    transfers: int | None = None
    original_time: float | None = None
    compiled_time: float | None = None
    first_run_time: float | None = None
    speed_trial_time: float | None = None
    pcc: float | None = None
    pcc_threshold: float = PCC_THRESHOLD
    max_absolute: float | None = None
    excess: float | None = None
    runs: int = 0
    simulated: bool = False
    fallbacks: Fallbacks | None = None
    first_token_time: float | None = None
    tokens_per_second: float | None = None
    builds: int | None = None
    memory: int | None = None
    quantization: str = ""
    layers: int | None = None
    layers_quantized: int | None = None
    size_ratio: float | None = None
    float_speedup: float | None = None
    error: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    tries: Tries | None = None

    @property
    def speedup(self) -> float | None:
        """How many times faster the compiled model is; None if its time is an estimate."""
        if not self.original_time or not self.compiled_time or self.simulated:
            return None
        return self.original_time / self.compiled_time

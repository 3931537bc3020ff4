"""One row of the results table: a model before and after it was brought up on a target."""

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
    """A model's run before and after, with what it took and how far it is off.

    Times are medians of interleaved runs, in seconds; loading the model is in none of them. What
    was not reached before a failure is None.

    Args:
        model, target: what ran where.
        status: `ok` only if it ran and its accuracy meets the threshold.
        batch: the size of the first input's first dimension.
        ops_before, unique_before, ops_remain, unique_remain, transfers: as in `Coverage`.
        original_time: one call of the model as it came.
        compiled_time: one call of the compiled model.
        first_run_time: compiling and the first call together.
        speed_trial_time: how much of compiling the speed trials took.
        pcc, pcc_threshold: the accuracy and what it must reach.
        max_absolute: the largest absolute difference of any output.
        excess: where the PCC is below the threshold on a device that stores few bits: how many times as far
            off that output is as the right one is once it is stored so; up to 2 is taken for right.
        runs: how many runs of each the medians are of.
        simulated: whether the target was only simulated; `compiled_time` is then an estimate of what a
            call would take on the device, and no time that was measured.
        fallbacks: how many calls of the compiled model eager torch ran after all.
        first_token_time, tokens_per_second: of a model that generated: seconds to the first new token, and
            how fast the others came; its times above are those of all tokens together.
        builds: how many programs were built for that.
        quantization: by which method the model was quantized before it was compiled; empty if it was not.
        layers, layers_quantized: how many layers it could quantize, and did.
        size_ratio: the quantized weights' bytes over the float ones'.
        float_speedup: how many times faster it is than the float model on the same target, where timed.
        memory: how many bytes more the process held after that than before.
        error: why it failed.
        versions: of python, torch, torchport and the target's library.
        machine: the processor and the number of threads.
        tries: what came of each engine, for the target `auto`.
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
        """How many times faster the compiled model is; nothing where its time is an estimate."""
        if not self.original_time or not self.compiled_time or self.simulated:
            return None
        return self.original_time / self.compiled_time

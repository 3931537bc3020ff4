"""The outcome of trying several engines on one model to find the best."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torchport.records.record import Record

EAGER = "eager"  # the row of eager torch itself

TryStatus = Literal[
    "ok",  # it runs the model, or part of it, with correct results
    "refused",  # it is not installed, or takes no op of the model
    "wrong",  # its results differ from eager torch's
    "failed",  # it raised an error
    "crashed",  # its process died
    "timeout",  # it exceeded its share of the time budget
    "memory",  # it exceeded its memory limit
    "skipped",  # the budget was spent before its turn
]


@dataclass(frozen=True, slots=True)
class EngineTry(Record):
    """The outcome of one engine, tried in a process of its own.

    Args:
        engine: the target's name, or `eager`.
        status: one of the codes in `TryStatus`.
        seconds: the median time of a call; for the objective `throughput`, of one among concurrent calls.
        eager_seconds: the same for eager torch, measured in the same process in interleaved runs.
        fastest, eager_fastest: the times of the fastest calls.
        pcc, max_absolute: how accurate its results are; those of the worst output.
        build_seconds: how long it took to compile.
        memory_bytes: by how much the compiled model increased its process's memory.
        peak_bytes: its process's peak memory.
        transfers: how many tensors move to and from islands.
        ops, ops_taken: how many ops there are, and how many of them it takes.
        reason: why it is not `ok`, in a sentence.
        unit: what one time measures: a `call`, or a `token` where generation was timed.
    """

    engine: str
    status: TryStatus
    seconds: float | None = None
    eager_seconds: float | None = None
    pcc: float | None = None
    max_absolute: float | None = None
    build_seconds: float | None = None
    memory_bytes: int | None = None
    peak_bytes: int | None = None
    transfers: int | None = None
    ops: int | None = None
    ops_taken: int | None = None
    reason: str = ""
    fastest: float | None = None
    eager_fastest: float | None = None
    unit: Literal["call", "token"] = "call"

    @property
    def ratio(self) -> float | None:
        """Its time relative to eager torch's; engines are compared by this ratio.

        It is taken of the fastest calls or of the medians, whichever is worse: load on the machine can
        flatter either.
        """
        if self.fastest is None or not self.eager_fastest or self.seconds is None or not self.eager_seconds:
            return None
        return max(self.fastest / self.eager_fastest, self.seconds / self.eager_seconds)


@dataclass(frozen=True, slots=True)
class Tries(Record):
    """All engines that were tried on a model, and the one that was chosen.

    Args:
        model: the model's name.
        objective: what the engine was chosen for: `latency`, `throughput` or `memory`.
        chosen: the engine that runs the model.
        rows: one row for each engine, in the order in which they were tried; eager torch first.
        machine: a digest of the machine that the engines were measured on.
        seconds: how long all tries took together.
        versions: the versions of the engines' libraries.
        remembered: whether the result was read from the cache.
    """

    schema: ClassVar[str] = "torchport.tries/1"

    model: str
    objective: str
    chosen: str
    rows: tuple[EngineTry, ...]
    machine: str
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    remembered: bool = False

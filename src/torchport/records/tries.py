"""What came of trying several engines on one model, to find the fastest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torchport.records.record import Record

EAGER = "eager"  # the row of eager torch itself

TryStatus = Literal[
    "ok",  # it runs the model, or some of it, and is right
    "refused",  # it is not installed, or takes no op of the model
    "wrong",  # its results differ from eager torch's
    "failed",  # it raised
    "crashed",  # its process ended
    "timeout",  # it took longer than its share of the budget
    "memory",  # it held more memory than it may
    "skipped",  # the budget was spent before its turn
]


@dataclass(frozen=True, slots=True)
class EngineTry(Record):
    """What came of one engine, in a process of its own.

    Args:
        engine: the target's name, or `eager`.
        status: a code out of `TryStatus`.
        seconds: of a call, the median; for the objective `throughput`, of a call among several at a time.
        eager_seconds: of eager torch, in the same process and in turns with it.
        fastest, eager_fastest: the fastest of these calls.
        pcc, max_absolute: how far its results are off; the worst output counts.
        build_seconds: how long it took to compile.
        memory_bytes: how much more its process held with the compiled model than before.
        peak_bytes: the most that its process held at any time.
        transfers: how many tensors go to and from islands.
        ops, ops_taken: how many ops there are, and how many of them it takes.
        reason: why it is not `ok`, in a sentence.
        unit: what its times are of: a `call`, or a `token`, where generating was timed.
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
        """How many times as long as eager torch it takes; engines are compared by it.

        By the fastest calls or by the medians, whichever is worse: a busy machine flatters one or the other.
        """
        if self.fastest is None or not self.eager_fastest or self.seconds is None or not self.eager_seconds:
            return None
        return max(self.fastest / self.eager_fastest, self.seconds / self.eager_seconds)


@dataclass(frozen=True, slots=True)
class Tries(Record):
    """All engines that were tried on a model, and which of them runs it.

    Args:
        model: the model's name.
        objective: what the best is by: `latency`, `throughput` or `memory`.
        chosen: the engine that runs the model.
        rows: one an engine, in the order in which they were tried; eager torch first.
        machine: a digest of the machine that it was measured on.
        seconds: how long all of it took.
        versions: of the engines' libraries.
        remembered: whether it was measured before, and read from the cache.
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

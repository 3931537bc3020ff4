"""Where a model's time is spent on a target, op by op, as measured by the engine itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torchport.records.record import JSON, Record

FoldKey = Literal["op", "module", "line", "kernel"]


@dataclass(frozen=True, slots=True)
class ProfiledOp(Record):
    """One kernel, or several that together compute one op.

    Args:
        op: the torch op that it computes; for fused ops, the one with the most arithmetic; empty if the
            engine does not say.
        node: that op's name in the graph.
        fused: the other ops that it computes.
        module_path: the module that calls the op.
        source: the user's source line that calls it.
        place: the target's name, or `host`.
        seconds: how long it takes.
        kernel: the engine's name for the kernel.
        precision: the precision that it computed in, if the engine says.
        is_reference: whether it is an unoptimized reference kernel, used where the engine has no fast one.
        flops, bytes: its cost, fused ops included.
        roofline_seconds: the roofline's lower bound on its time.
    """

    op: str
    node: str
    fused: tuple[str, ...]
    module_path: str
    source: str
    place: str
    seconds: float
    kernel: str
    precision: str
    is_reference: bool
    flops: int
    bytes: int
    roofline_seconds: float

    @property
    def roofline_share(self) -> float | None:
        """How close it is to the roofline, where 1 is on it; None if its cost is unknown."""
        return self.roofline_seconds / self.seconds if self.seconds and self.roofline_seconds else None


@dataclass(frozen=True, slots=True)
class FoldedTime(Record):
    """The total time of the ops with a common key: an op, a module, a source line or a kernel.

    Args:
        key: the common key.
        count: the number of ops.
        seconds: how long they take together.
        roofline_seconds: how long they would take on the roofline.
    """

    key: str
    count: int
    seconds: float
    roofline_seconds: float


@dataclass(frozen=True, slots=True)
class Profile(Record):
    """A call of a compiled model, op by op, in execution order.

    Args:
        model: the model's name.
        target: the target that it ran on.
        seconds: the median time of a call without the engine's profiling.
        ops: the times that the engine and torch measured.
        peak_flops, bandwidth: the roofline's operations and bytes per second, measured here or given.
        unmeasured: islands whose engine does not report times per op, with the seconds of each.
        versions, machine: the versions and the machine that it was measured with.
    """

    schema: ClassVar[str] = "torchport.profile/1"

    model: str
    target: str
    seconds: float
    ops: tuple[ProfiledOp, ...]
    peak_flops: float
    bandwidth: float
    unmeasured: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)

    @property
    def measured_seconds(self) -> float:
        """How long all ops take together, as measured by the engine."""
        return sum(row.seconds for row in self.ops)

    @property
    def reference_ops(self) -> tuple[ProfiledOp, ...]:
        """The ops that run in reference kernels, the slowest first."""
        found = [row for row in self.ops if row.is_reference]
        return tuple(sorted(found, key=lambda row: -row.seconds))

    def fold(self, by: FoldKey) -> tuple[FoldedTime, ...]:
        """Return the times summed by op, module, source line or kernel, the longest first."""
        keys = {"op": "op", "module": "module_path", "line": "source", "kernel": "kernel"}
        groups: dict[str, list[ProfiledOp]] = {}
        for row in self.ops:
            groups.setdefault(getattr(row, keys[by]), []).append(row)
        return tuple(sorted(_folded(groups.items()), key=lambda folded: -folded.seconds))

    def chrome_trace(self) -> dict[str, JSON]:
        """Return a trace for Chrome's `about:tracing` or Perfetto, with the ops one after another."""
        events: list[JSON] = []
        start = 0.0
        for row in self.ops:
            events.append(
                {
                    "name": row.op or row.kernel,
                    "cat": row.place,
                    "ph": "X",
                    "ts": start * 1e6,
                    "dur": row.seconds * 1e6,
                    "pid": 0,
                    "tid": row.place,
                    "args": {
                        "module": row.module_path,
                        "source": row.source,
                        "kernel": row.kernel,
                        "precision": row.precision,
                        "fused": list(row.fused),
                        "roofline_share": row.roofline_share,
                    },
                }
            )
            start += row.seconds
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def _folded(groups: Iterable[tuple[str, list[ProfiledOp]]]) -> Iterable[FoldedTime]:
    for key, rows in groups:
        roofline = sum(row.roofline_seconds for row in rows)
        yield FoldedTime(key, len(rows), sum(row.seconds for row in rows), roofline)

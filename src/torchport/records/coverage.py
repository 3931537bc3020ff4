"""Which ops of a model a target takes, and why the others stay on the host."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from torchport.records.record import Record
from torchport.records.verdict import Reason


@dataclass(frozen=True, slots=True)
class StayedOp(Record):
    """One op that stays on the host.

    Args:
        op: the op, such as `aten.cumsum.default`.
        node: its name in the graph.
        reason, detail, remedy: the verdict on it.
        module_path: the module that called it, such as `encoder.layer.0.attention`.
        source: the user's line, `file.py:12 in forward`.
        flops, bytes: its cost.
    """

    op: str
    node: str
    reason: Reason
    detail: str
    remedy: str
    module_path: str
    source: str
    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ConditionalOp(Record):
    """One op that the target takes on a condition that can only be checked once the weights have values.

    Args:
        op, node, module_path, source: as in `StayedOp`.
        condition: the condition, in a sentence.
    """

    op: str
    node: str
    condition: str
    module_path: str
    source: str


@dataclass(frozen=True, slots=True)
class IslandSummary(Record):
    """One subgraph that runs on the target."""

    name: str
    ops: int
    inputs: int
    outputs: int
    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Coverage(Record):
    """Which ops of a model a target takes.

    Args:
        model: the model's name.
        target: the target's name.
        ops_before: the number of ops in the graph that the target receives.
        unique_before: the number of distinct ops among them.
        ops_remain: the number of ops that stay on the host.
        unique_remain: the number of distinct ops among those.
        transfers: how many tensors move to or from the device in one call.
        inputs, outputs: how many input tensors a call reads, and how many it returns; a target that takes
            every op needs at least as many transfers as their sum.
        flops, flops_covered: floating-point operations in total, and on the target.
        bytes, bytes_covered: bytes that the ops read and write in total, and on the target.
        islands: the subgraphs that the target takes.
        stayed: one row for each op that stays.
        host_views: ops that only create a view of a result on the host; they move no data and do not count
            as ops that stay.
        conditional: ops that are taken if weights that have no values yet, as on the `meta` device, turn out
            to have suitable ones.
    """

    schema: ClassVar[str] = "torchport.coverage/1"

    model: str
    target: str
    ops_before: int
    unique_before: int
    ops_remain: int
    unique_remain: int
    transfers: int
    flops: int
    flops_covered: int
    bytes: int
    bytes_covered: int
    islands: tuple[IslandSummary, ...]
    stayed: tuple[StayedOp, ...]
    host_views: tuple[StayedOp, ...] = ()
    conditional: tuple[ConditionalOp, ...] = ()
    inputs: int = 0
    outputs: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing stays on the host."""
        return self.ops_remain == 0

    def _repr_html_(self) -> str:
        """Show which ops stay and why, in a notebook."""
        taken = self.ops_before - self.ops_remain
        head = (
            f"{html.escape(self.model)} on {html.escape(self.target)}: {taken:,} of {self.ops_before:,} ops"
        )
        rows = "".join(
            f"<tr><td><code>{html.escape(op)}</code></td><td>{count:,}</td><td>{reason}</td>"
            f'<td style="text-align:left">{html.escape(detail)}</td>'
            f'<td style="text-align:left">{html.escape(remedy)}</td></tr>'
            for (op, reason, detail, remedy), count in Counter(
                (row.op, row.reason, row.detail, row.remedy) for row in self.stayed
            ).most_common()
        )
        columns = "".join(f"<th>{name}</th>" for name in ("Op", "Count", "Reason", "Why", "What to do"))
        table = f"<table><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
        return f"<p>{head}</p>{table}"

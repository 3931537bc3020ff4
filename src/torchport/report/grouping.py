"""Groups the ops that stay for the same reason, so that a hundred layers become one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchport.records import StayedOp


@dataclass(frozen=True, slots=True)
class StayedGroup:
    """Ops of one kind that stay on the host for one reason.

    Args:
        op, reason, detail, remedy: what they have in common.
        count: the number of ops.
        flops, bytes: their total cost.
        node: the name of the first one in the graph.
        places: where they are: pairs of a module path and a source line, either of which may be empty.
    """

    op: str
    reason: str
    detail: str
    remedy: str
    count: int
    flops: int
    bytes: int
    node: str
    places: tuple[tuple[str, str], ...]


def group_stayed(stayed: Sequence[StayedOp]) -> list[StayedGroup]:
    """Return the groups, the largest first.

    Example:
        >>> coverage = torchport.explain(lambda x: torch.rand_like(x), (torch.ones(2),), target="host")
        >>> [(group.op, group.count) for group in group_stayed(coverage.stayed)]
        [('aten.rand_like.default', 1)]
    """
    groups: dict[tuple[str, str, str, str], list[StayedOp]] = {}
    for op in stayed:
        groups.setdefault((op.op, op.reason, op.detail, op.remedy), []).append(op)
    made = [
        StayedGroup(
            *key,
            count=len(ops),
            flops=sum(op.flops for op in ops),
            bytes=sum(op.bytes for op in ops),
            node=ops[0].node,
            places=tuple(dict.fromkeys((op.module_path, op.source) for op in ops)),
        )
        for key, ops in groups.items()
    ]
    return sorted(made, key=lambda group: group.count, reverse=True)

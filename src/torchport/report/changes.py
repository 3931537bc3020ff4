"""What changed between two runs: which rows got better or worse, are new or are gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torchport.records import BenchRecord, Record
from torchport.report.reading import Report

_NOISE = 0.1  # relative differences of speed-ups up to this are ignored


@dataclass(frozen=True, slots=True)
class Change(Record):
    """A difference from the baseline.

    Args:
        model, target: the row.
        what: the column.
        before, now: its texts.
        kind: the kind of change.
    """

    model: str
    target: str
    what: str
    before: str
    now: str
    kind: Literal["better", "worse", "new", "gone"]


def changes_since(baseline: Report, report: Report) -> list[Change]:
    """Return what changed since a baseline, regressions first.

    Args:
        baseline, report: the reports that `read_report` returned.
    """
    before = {(row.model, row.target): row for row in baseline.benches}
    now = {(row.model, row.target): row for row in report.benches}
    found: list[Change] = []
    for key in sorted(before.keys() | now.keys()):
        if key not in before:
            found.append(Change(*key, "Row", "-", now[key].status, "new"))
        elif key not in now:
            found.append(Change(*key, "Row", before[key].status, "-", "gone"))
        else:
            found += _compare(before[key], now[key])
    order = ["worse", "better", "new", "gone"]
    return sorted(found, key=lambda change: order.index(change.kind))


def _compare(before: BenchRecord, now: BenchRecord) -> Iterator[Change]:
    key = (now.model, now.target)
    order = ["ok", "inaccurate", "failed"]
    if before.status != now.status:
        worse = order.index(now.status) > order.index(before.status)
        yield Change(*key, "Status", before.status, now.status, "worse" if worse else "better")
    if before.ops_remain is not None and now.ops_remain is not None and before.ops_remain != now.ops_remain:
        worse = now.ops_remain > before.ops_remain
        yield Change(
            *key,
            "Torch Ops Remain",
            str(before.ops_remain),
            str(now.ops_remain),
            "worse" if worse else "better",
        )
    if before.speedup and now.speedup and abs(now.speedup / before.speedup - 1) > _NOISE:
        worse = now.speedup < before.speedup
        yield Change(
            *key, "Speed-up", f"{before.speedup:.2f}x", f"{now.speedup:.2f}x", "worse" if worse else "better"
        )
    if before.pcc is not None and now.pcc is not None and f"{before.pcc:.4f}" != f"{now.pcc:.4f}":
        worse = not now.pcc > before.pcc
        yield Change(
            *key, "Accuracy (PCC)", f"{before.pcc:.6f}", f"{now.pcc:.6f}", "worse" if worse else "better"
        )

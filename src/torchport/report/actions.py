"""Suggests what to do next: the fixes that would help the most models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torchport.records import BenchRecord, Coverage, Record, StayedOp
from torchport.report.columns import complaint
from torchport.report.reading import Report

_LONGEST = 200  # errors are grouped by this many characters
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Action(Record):
    """A suggested action.

    Args:
        text: what to do, and what it would gain.
        detail: why, or how.
        models: how many models it would fix or complete.
        weight: its rank among actions for equally many models.
        model, target, node: the first place to look at.
    """

    text: str
    detail: str
    models: int
    weight: float
    model: str = ""
    target: str = ""
    node: str = ""


def next_actions(report: Report, most: int = 3) -> list[Action]:
    """Return the actions that would help most, the best first.

    Args:
        report: the report that `read_report` returned.
        most: the most actions to return.
    """
    found = [*_failures(report), *_lowerings(report.coverages), *_survey_failures(report)]
    return sorted(found, key=lambda action: (-action.models, -action.weight, action.text))[:most]


def _failures(report: Report) -> Iterator[Action]:
    groups: dict[tuple[str, str], list[BenchRecord]] = {}
    for row in report.benches:
        if row.status != "ok":
            groups.setdefault((row.status, _alike(complaint(row))), []).append(row)
    for (status, _), rows in groups.items():
        models = list(dict.fromkeys(row.model for row in rows))
        targets = ", ".join(dict.fromkeys(row.target for row in rows))
        who = models[0] if len(models) == 1 else _count(len(models), "model")
        text = f"Fix why {who} {_verb(status, len(models))} on {targets}"
        yield Action(text, complaint(rows[0]), len(models), 1.0, models[0], rows[0].target)


def _verb(status: str, number: int) -> str:
    if status == "failed":
        return "fails" if number == 1 else "fail"
    return "is inaccurate" if number == 1 else "are inaccurate"


def _alike(error: str) -> str:
    """Return an error with its numbers masked, so that the same error of several models is grouped."""
    return _NUMBERS.sub("#", error)[:_LONGEST]


@dataclass(slots=True)
class _Staying:
    """Ops of one name that stay on one target."""

    ops: list[StayedOp] = field(default_factory=list)
    models: dict[str, None] = field(default_factory=dict)
    completes: int = 0


def _lowerings(coverages: Iterable[Coverage]) -> Iterator[Action]:
    staying: dict[tuple[str, str], _Staying] = {}
    flops: dict[str, int] = {}
    count: dict[str, int] = {}
    for coverage in coverages:
        names = {_op_name(op.op) for op in coverage.stayed}
        for op in coverage.stayed:
            entry = staying.setdefault((coverage.target, _op_name(op.op)), _Staying())
            entry.ops.append(op)
            entry.models[coverage.model] = None
            flops[coverage.target] = flops.get(coverage.target, 0) + op.flops
            count[coverage.target] = count.get(coverage.target, 0) + 1
        if len(names) == 1:
            staying[coverage.target, names.pop()].completes += 1
    for (target, name), entry in staying.items():
        whole = flops[target]
        share = sum(op.flops for op in entry.ops) / whole if whole else 0.0
        gains = [f"complete {_count(entry.completes, 'model')}"] if entry.completes else []
        if share:
            gains.append(f"move {share:.0%} of all FLOPs that stay")
        if not gains:
            gains = [f"move {len(entry.ops) / count[target]:.0%} of all ops that stay"]
        first = entry.ops[0]
        verb = "Lowering" if first.reason == "no_lowering" else "Taking"
        yield Action(
            f"{verb} {name} on {target} would {' and '.join(gains)}",
            f"{first.reason}: {first.detail or first.remedy}",
            entry.completes,
            share + len(entry.ops) / count[target] / 100,
            next(iter(entry.models)),
            target,
            first.node,
        )


def _op_name(op: str) -> str:
    """Return an op's name without its overload: `aten.roll` for `aten.roll.default`."""
    return op.rpartition(".")[0] or op


def _survey_failures(report: Report) -> Iterator[Action]:
    groups: dict[str, list[tuple[str, str]]] = {}
    for model in report.survey.failed if report.survey else ():
        groups.setdefault(_alike(model.error or model.status), []).append((model.model, model.error))
    for failed in groups.values():
        what = failed[0][0] if len(failed) == 1 else f"{_count(len(failed), 'model')}"
        yield Action(f"Fix why {what} could not be surveyed", failed[0][1], len(failed), 0.5)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""Renders a survey for a terminal: how many models are ok, why others failed, and the most frequent ops."""

from __future__ import annotations

from torchport.report.markdown_table import align, escape
from torchport.report.survey.records import DIRECTIONS, Direction, OpCount, Survey

_MOST_OPS = 20
_WORDS: dict[Direction, str] = {"fw": "forward", "bw": "backward"}


def render_survey_markdown(survey: Survey) -> str:
    """Return the summary of a survey as Markdown that is also readable as plain text.

    Args:
        survey: the survey that `read_survey` returned.
    """
    parts = [summarise(survey), "\n".join(_ops_table(survey))]
    left_out = len({op.op for op in survey.ops}) - _MOST_OPS
    if left_out > 0:
        parts.append(f"and {left_out:,} more ops: use `--sql` or the CSV files")
    if survey.failed:
        parts.append(
            "\n".join(
                f"- ❌ {escape(model.model)}: {model.status}: {escape(model.error)}"
                for model in survey.failed
            )
        )
    return "\n\n".join(parts)


def summarise(survey: Survey) -> str:
    """Return the survey in one line: how many models are ok, and how many ops they have."""
    ok = len(survey.models) - len(survey.failed)
    facts = [f"{ok:,} of {len(survey.models):,} models ok"]
    for direction in DIRECTIONS:
        if ops := survey.ops_of(direction):
            total = sum(op.count for op in ops)
            facts.append(f"{total:,} ops {_WORDS[direction]} ({len(ops):,} unique)")
    return ", ".join(facts)


def ops_of_both(survey: Survey) -> list[tuple[str, OpCount | None, OpCount | None]]:
    """Return each op with its forward and its backward count, most frequent first."""
    forward = {op.op: op for op in survey.ops_of("fw")}
    backward = {op.op: op for op in survey.ops_of("bw")}
    rows = [(op, forward.get(op), backward.get(op)) for op in {**forward, **backward}]
    return sorted(rows, key=lambda row: (-sum(side.count for side in row[1:] if side), row[0]))


def _ops_table(survey: Survey) -> list[str]:
    flops = sum(op.flops for op in survey.ops)
    rows = [
        [
            escape(op),
            *_cells(forward),
            *_cells(backward),
            share((forward.flops if forward else 0) + (backward.flops if backward else 0), flops),
        ]
        for op, forward, backward in ops_of_both(survey)[:_MOST_OPS]
    ]
    header = ["Op", "Forward", "In Models", "Backward", "In Models", "FLOPs"]
    return align(header, rows, [False, True, True, True, True, True])


def share(part: int, whole: int) -> str:
    """Return a part as a percentage."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


def _cells(op: OpCount | None) -> tuple[str, str]:
    return (f"{op.count:,}", f"{op.models:,}") if op else ("-", "-")

"""The columns of the results table: one list that every format reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torchport.records import BenchRecord

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the results table.

    Args:
        title: its heading.
        text: a row's cell, for a person.
        value: what the row is sorted by.
        explanation: what the column says, for who meets it first.
        numeric: whether it is set to the right.
    """

    title: str
    text: Callable[[BenchRecord], str]
    value: Callable[[BenchRecord], Value]
    explanation: str
    numeric: bool = True


def _number(value: int | None) -> str:
    return ABSENT if value is None else str(value)


def _counts(total: int | None, unique: int | None) -> str:
    return ABSENT if total is None or unique is None else f"{total} ({unique})"


def _milliseconds(seconds: float | None) -> str:
    return ABSENT if seconds is None else f"{1000 * seconds:.2f}"


ABSENT = "-"
STATUS_MARKS = {"ok": "✅", "inaccurate": "❌", "failed": "❌"}

COLUMNS: tuple[Column, ...] = (
    Column("Model", lambda row: row.model, lambda row: row.model, "the model's name", numeric=False),
    Column(
        "Target",
        lambda row: f"{row.target} (simulated)" if row.simulated else row.target,
        lambda row: row.target,
        "where it was brought up; simulated where the device is not there",
        numeric=False,
    ),
    Column(
        "Status",
        lambda row: STATUS_MARKS[row.status],
        lambda row: ["ok", "inaccurate", "failed"].index(row.status),
        "✅ only if it ran and its accuracy meets the threshold",
        numeric=False,
    ),
    Column(
        "Batch", lambda row: _number(row.batch), lambda row: row.batch, "the first input's first dimension"
    ),
    Column(
        "Torch Ops Before (Unique)",
        lambda row: _counts(row.ops_before, row.unique_before),
        lambda row: row.ops_before,
        "how many torch ops the model has, and how many distinct ones",
    ),
    Column(
        "Torch Ops Remain (Unique)",
        lambda row: _counts(row.ops_remain, row.unique_remain),
        lambda row: row.ops_remain,
        "how many of them the target did not take",
    ),
    Column(
        "To/From Device Ops",
        lambda row: _number(row.transfers),
        lambda row: row.transfers,
        "how many tensors cross to or from the target in one call",
    ),
    Column(
        "Original Run Time (ms)",
        lambda row: _milliseconds(row.original_time),
        lambda row: row.original_time,
        "one call of the model as it came, median",
    ),
    Column(
        "Compiled Run Time (ms)",
        lambda row: _milliseconds(row.compiled_time) + (" (estimate)" if row.simulated else ""),
        lambda row: row.compiled_time,
        "one call of the compiled model, median of runs interleaved with the original's; of a simulated "
        "target an estimate for the device",
    ),
    Column(
        "Speed-up",
        lambda row: ABSENT if row.speedup is None else f"{row.speedup:.2f}x",
        lambda row: row.speedup,
        "how many times faster the compiled model is",
    ),
    Column(
        "First Run (ms)",
        lambda row: _milliseconds(row.first_run_time),
        lambda row: row.first_run_time,
        "compiling and the first call together; loading the model is not in it",
    ),
    Column(
        "Accuracy (PCC)",
        lambda row: ABSENT if row.pcc is None else f"{row.pcc:.6f}",
        lambda row: row.pcc,
        "Pearson's correlation coefficient of the two results; 1 is best",
    ),
)

FALLBACKS = Column(
    "Calls Run by Torch",
    lambda row: ABSENT if row.fallbacks is None else f"{row.fallbacks.fallbacks} of {row.fallbacks.calls}",
    lambda row: None if row.fallbacks is None else row.fallbacks.fallbacks,
    "how many calls of the compiled model eager torch ran after all: out of range, or the device raised",
)


def columns_for(rows: Iterable[BenchRecord]) -> tuple[Column, ...]:
    """Return the columns of a table: that of fallbacks only if there were any."""
    if any(row.fallbacks is not None and row.fallbacks.fallbacks for row in rows):
        return (*COLUMNS, FALLBACKS)
    return COLUMNS


def complaint(row: BenchRecord) -> str:
    """Return why a row is not ok, in one line; empty if it is."""
    if row.status == "ok":
        return ""
    if row.status == "inaccurate" and not row.error and row.pcc is not None:
        return f"the PCC is {row.pcc:.6f}, which is below {row.pcc_threshold:g}"
    return " ".join(row.error.split()) or f"it {row.status}"

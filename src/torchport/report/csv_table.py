"""Renders the results table as CSV for a spreadsheet or a script: plain numbers, times in seconds."""

from __future__ import annotations

from torchport.records import BenchRecord, Fallbacks, csv_text
from torchport.report.reading import Report

_FIELDS = (
    "model", "target", "status", "batch", "ops_before", "unique_before", "ops_remain", "unique_remain",
    "transfers", "original_time", "compiled_time", "speedup", "first_run_time", "pcc", "pcc_threshold",
    "max_absolute", "runs", "simulated", "fallbacks", "error",
)  # fmt: skip


def render_csv(report: Report) -> str:
    """Return the results as CSV: a column for each field of `BenchRecord`, a header, a line a row.

    Args:
        report: what `read_report` returned.

    Example:
        >>> Path("results.csv").write_text(render_csv(read_report(Path("out/demo"))))
    """
    return csv_text([_FIELDS, *map(_values, report.benches)])


def _values(row: BenchRecord) -> list[object]:
    values = (getattr(row, name) for name in _FIELDS)
    return [value.fallbacks if isinstance(value, Fallbacks) else value for value in values]

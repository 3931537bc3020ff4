"""Renders the results table as CSV for a spreadsheet or a script: plain numbers, times in seconds."""

from __future__ import annotations

import csv
import io

from torchport.records import BenchRecord, Fallbacks
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
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_FIELDS)
    writer.writerows(_values(row) for row in report.benches)
    return text.getvalue()


def _values(row: BenchRecord) -> list[object]:
    values = (getattr(row, name) for name in _FIELDS)
    values = (value.fallbacks if isinstance(value, Fallbacks) else value for value in values)
    return ["" if value is None else value for value in values]

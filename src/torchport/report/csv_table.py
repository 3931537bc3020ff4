"""Renders the results table as CSV for a spreadsheet or a script: plain numbers, times in seconds."""

from __future__ import annotations

from torchport.records import csv_text
from torchport.report.columns import CSV_FIELDS, field_value
from torchport.report.reading import Report


def render_csv(report: Report) -> str:
    """Return the results as CSV: a column for each field of `BenchRecord`, a header, a line a row.

    Args:
        report: what `read_report` returned.

    Example:
        >>> Path("results.csv").write_text(render_csv(read_report(Path("out/demo"))))
    """
    rows = [[field_value(row, field) for field in CSV_FIELDS] for row in report.benches]
    return csv_text([CSV_FIELDS, *rows])

"""Renders the results table as CSV for a spreadsheet or a script: plain numbers, times in seconds."""

from __future__ import annotations

from torchport.records import csv_text
from torchport.report.columns import CSV_FIELDS, field_value
from torchport.report.reading import Report


def render_csv(report: Report) -> str:
    """Return the results as CSV: a header with the fields of `CSV_FIELDS`, and one line for each row.

    Args:
        report: the report that `read_report` returned.

    Example:
        >>> Path("results.csv").write_text(render_csv(read_report(Path("out/demo"))))
    """
    rows = [[field_value(row, field) for field in CSV_FIELDS] for row in report.benches]
    return csv_text([CSV_FIELDS, *rows])

"""A directory of records → the results table: Markdown, CSV, one self-contained HTML file; no torch."""

from torchport.report.csv_table import render_csv
from torchport.report.grouping import StayedGroup, group_stayed
from torchport.report.html_page import render_html
from torchport.report.markdown import render_markdown
from torchport.report.reading import Problem, Report, read_report

__all__ = [
    "Problem",
    "Report",
    "StayedGroup",
    "group_stayed",
    "read_report",
    "render_csv",
    "render_html",
    "render_markdown",
]

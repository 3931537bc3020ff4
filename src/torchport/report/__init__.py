"""A directory of records → the results table and the survey's report, as Markdown, CSV or HTML; no torch."""

from torchport.report.csv_table import render_csv
from torchport.report.grouping import StayedGroup, group_stayed
from torchport.report.html_page import render_html
from torchport.report.markdown import render_markdown
from torchport.report.marked_section import fill_place
from torchport.report.problem import Problem
from torchport.report.reading import Report, read_report
from torchport.report.survey import (
    DEFAULT_LIMITS,
    Limits,
    QueryResult,
    Survey,
    query_survey,
    read_survey,
    render_answer,
    write_survey_report,
)

__all__ = [
    "DEFAULT_LIMITS",
    "Limits",
    "Problem",
    "QueryResult",
    "Report",
    "StayedGroup",
    "Survey",
    "fill_place",
    "group_stayed",
    "query_survey",
    "read_report",
    "read_survey",
    "render_answer",
    "render_csv",
    "render_html",
    "render_markdown",
    "write_survey_report",
]

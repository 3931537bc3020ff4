"""Renders the results table as Markdown that is also readable as plain text."""

from __future__ import annotations

from torchport.records import Tries
from torchport.report.columns import columns_for, complaint
from torchport.report.markdown_table import align, escape
from torchport.report.reading import Report
from torchport.report.survey.markdown import render_survey_markdown
from torchport.report.tries_table import TRIES_HEADER, TRIES_NUMERIC, tries_cells


def render_markdown(report: Report) -> str:
    """Return the results table, the reasons for rows that are not ok, analyses, and the survey's summary.

    Args:
        report: the report that `read_report` returned.

    Returns:
        Markdown, with columns padded so that they align in a terminal.

    Example:
        >>> print(render_markdown(read_report(Path("out/demo"))))
    """
    parts = [_results(report)] if report.benches or not (report.survey or report.analyses) else []
    if report.analyses:
        parts.append(_analyses(report))
    if report.survey is not None:
        parts.append(render_survey_markdown(report.survey))
    return "\n\n".join(parts)


def _analyses(report: Report) -> str:
    header = ["Model", "Parameters", "FLOPs", "Bytes Moved", "Peak Memory (Bytes)"]
    cells = [
        [
            escape(analysis.model),
            f"{analysis.cost.parameters:,}",
            f"{analysis.cost.flops + analysis.cost.vector_flops:,}",
            f"{analysis.cost.bytes_read + analysis.cost.bytes_written:,}",
            f"{analysis.cost.peak.bytes:,}" if analysis.cost.peak else "-",
        ]
        for analysis in report.analyses
    ]
    return "\n".join(align(header, cells, [False, True, True, True, True]))


def _results(report: Report) -> str:
    columns = columns_for(report.benches)
    header = [column.title for column in columns]
    cells = [[escape(column.text(row)) for column in columns] for row in report.benches]
    lines = align(header, cells, [column.numeric for column in columns])
    complaints = [
        f"- ❌ {escape(row.model)} on {escape(row.target)}: {escape(complaint(row))}"
        for row in report.benches
        if row.status != "ok"
    ]
    tables = [
        line for row in report.benches if row.tries is not None for line in _tries(row.model, row.tries)
    ]
    return "\n".join(lines + (["", *complaints] if complaints else []) + tables)


def _tries(model: str, tries: Tries) -> list[str]:
    """Return the outcome of each engine, as a table below the results."""
    head = f"{escape(model)}: auto chose {escape(tries.chosen)} by {escape(tries.objective)}"
    cells = [[escape(cell) for cell in tries_cells(row)] for row in tries.rows]
    return ["", head, "", *align(list(TRIES_HEADER), cells, TRIES_NUMERIC)]

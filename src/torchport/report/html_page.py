"""Renders the report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import statistics
from html import escape

from torchport.records import BenchRecord
from torchport.report.columns import STATUS_MARKS, Column, columns_for, complaint
from torchport.report.html_script import SCRIPT
from torchport.report.html_stayed import anchor, render_stayed
from torchport.report.html_style import STYLE
from torchport.report.html_table import breakable, sortable, tile
from torchport.report.reading import Report
from torchport.report.survey.html import render_survey_html
from torchport.report.survey.markdown import summarise

# The page says itself that it loads nothing; a browser holds it to that.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def render_html(report: Report, *, title: str = "torchport results") -> str:
    """Return the report as a self-contained HTML page with a sortable results table.

    Args:
        report: what `read_report` returned.
        title: the page's heading.

    Example:
        >>> Path("index.html").write_text(render_html(read_report(Path("out/demo"))), encoding="utf-8")
    """
    shows_benches = bool(report.benches) or report.survey is None
    sections = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(_lead(report))}</p>',
        _tiles(report) if shows_benches else "",
        _table(report) if shows_benches else "",
        render_survey_html(report.survey) if report.survey else "",
        _complaints(report),
        render_stayed(report),
        _footer(report) if shows_benches else "",
    ]
    return _page(title, "\n".join(section for section in sections if section))


def _lead(report: Report) -> str:
    parts = []
    if report.benches or report.survey is None:
        models = len({row.model for row in report.benches})
        targets = sorted({row.target for row in report.benches})
        parts.append(f"{models} model{'' if models == 1 else 's'} on {', '.join(targets)}")
    if report.survey is not None:
        parts.append(f"survey: {summarise(report.survey)}")
    return " · ".join(parts)


def _page(title: str, content: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{content}
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _tiles(report: Report) -> str:
    rows = report.benches
    count = {status: sum(row.status == status for row in rows) for status in STATUS_MARKS}
    speedups = [row.speedup for row in rows if row.status == "ok" and row.speedup is not None]
    tiles = [tile(f"{count['ok']} / {len(rows)}", "ran and are accurate", "good" if count["ok"] else "bad")]
    if count["inaccurate"]:
        tiles.append(tile(str(count["inaccurate"]), "inaccurate", "bad"))
    if count["failed"]:
        tiles.append(tile(str(count["failed"]), "failed", "bad"))
    if speedups:
        tiles.append(tile(f"{statistics.median(speedups):.2f}x", "median speed-up", ""))
        tiles.append(tile(f"{max(speedups):.2f}x", "best speed-up", ""))
    covered = [row for row in rows if row.ops_remain is not None]
    if covered:
        whole = sum(row.ops_remain == 0 for row in covered)
        tiles.append(tile(f"{whole} / {len(covered)}", "with no torch op left", ""))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _table(report: Report) -> str:
    fastest = max((row.speedup or 0.0 for row in report.benches), default=0.0)
    columns = columns_for(report.benches)
    rows = "\n".join(
        f"<tr>{''.join(_cell(column, row, report, fastest) for column in columns)}</tr>"
        for row in report.benches
    )
    heads = [(column.title, column.explanation, _class(column)) for column in columns]
    return sortable("results", heads, rows, "rows")


def _class(column: Column) -> str:
    return ' class="number"' if column.numeric else f' class="{column.title.lower()}"'


def _cell(column: Column, row: BenchRecord, report: Report, fastest: float) -> str:
    value = column.value(row)
    content = escape(column.text(row))
    if column.title == "Speed-up" and row.speedup is not None:
        content = _bar(row.speedup, fastest)
    elif column.title == "Model":
        content = breakable(content)
    elif column.title == "Status":
        content = (
            f'<span role="img" aria-label="{row.status}" title="{escape(complaint(row))}">{content}</span>'
        )
    elif column.title == "Torch Ops Remain (Unique)" and row.ops_remain and report.coverage_of(row):
        content = f'<a href="#{anchor(row.model, row.target)}">{content}</a>'
    return f'<td{_class(column)} data-value="{"" if value is None else escape(str(value))}">{content}</td>'


def _bar(speedup: float, fastest: float) -> str:
    """Return a bar as long as the speed-up, with a tick where neither is faster."""
    longest = max(fastest, 1.0) * 1.02
    slower = " slower" if speedup < 1.0 else ""
    style = f"--part:{100 * speedup / longest:.1f}%;--one:{100 / longest:.1f}%"
    return f'<div class="bar{slower}"><i style="{style}"></i><span>{speedup:.2f}x</span></div>'


def _complaints(report: Report) -> str:
    lines = [
        f"<li>❌ <b>{escape(row.model)}</b> on {escape(row.target)}: {escape(complaint(row))}</li>"
        for row in report.benches
        if row.status != "ok"
    ] + [
        f"<li>⚠️ <code>{escape(problem.path)}</code>: {escape(problem.detail)}</li>"
        for problem in report.every_problem
    ]
    if not lines:
        return ""
    return f'<h2>What is not ok</h2>\n<ul class="card complaints">{"".join(lines)}</ul>'


def _footer(report: Report) -> str:
    """Say what the records were measured with, once for each distinct set of versions."""
    grounds = []
    for row in report.benches:
        facts = [f"{name} {version}" for name, version in row.versions.items()]
        facts += [f"{name}: {value}" for name, value in row.machine.items()]
        line = escape(" · ".join(facts))
        if line and line not in grounds:
            grounds.append(line)
    times = "Times are medians of interleaved runs; loading a model is in none of them."
    return f"<footer>{'<br>'.join([times, *grounds])}</footer>"

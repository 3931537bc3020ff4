"""Renders what stays on the host, and why: the part of the HTML report for who ports the next op."""

from __future__ import annotations

import hashlib
from html import escape

from torchport.records import Coverage
from torchport.report.grouping import StayedGroup, group_stayed
from torchport.report.reading import Report


def anchor(model: str, target: str) -> str:
    """Return the page's name for a model's section."""
    return "stayed-" + hashlib.sha256(f"{model}\0{target}".encode()).hexdigest()[:12]


def render_stayed(report: Report) -> str:
    """Return a section that lists, for each model, the ops that stay; empty if none do."""
    parts = [_coverage(coverage) for coverage in report.coverages if coverage.stayed]
    if not parts:
        return ""
    return "<h2>What stays on the host, and why</h2>\n" + "\n".join(parts)


def _coverage(coverage: Coverage) -> str:
    summary = (
        f"<b>{escape(coverage.model)}</b> on {escape(coverage.target)}: "
        f"{coverage.ops_remain} of {coverage.ops_before} ops stay "
        f'<span class="tag">{_percent(coverage.flops_covered, coverage.flops)} of FLOPs and '
        f"{_percent(coverage.bytes_covered, coverage.bytes)} of bytes on the target</span>"
    )
    rows = "\n".join(_row(group) for group in group_stayed(coverage.stayed))
    titles = ("Op", "Times", "Reason", "Why, and what would change it", "Where")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    return (
        f'<details class="card" id="{anchor(coverage.model, coverage.target)}"><summary>{summary}</summary>'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></details>"
    )


def _row(group: StayedGroup) -> str:
    remedy = f"<br>→ {escape(group.remedy)}" if group.remedy else ""
    return (
        f'<tr><td><code>{escape(group.op)}</code></td><td class="number">{group.count}</td>'
        f'<td><span class="tag">{escape(group.reason)}</span></td>'
        f'<td>{escape(group.detail)}{remedy}</td><td class="place">{_places(group)}</td></tr>'
    )


def _places(group: StayedGroup) -> str:
    places = [_place(*place) for place in group.places]
    if len(places) <= 2:
        return "<br>".join(places)
    others = "".join(f"<li>{place}</li>" for place in places[1:])
    return (
        f"{places[0]}<details><summary>and {len(places) - 1} more places</summary>"
        f'<ul class="plain">{others}</ul></details>'
    )


def _place(module_path: str, source: str) -> str:
    parts = [f"<code>{escape(part)}</code>" for part in (module_path, source) if part]
    return " · ".join(parts)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "100.0%"

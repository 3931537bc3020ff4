"""Renders the report as one self-contained HTML file, without network access or other files."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from functools import cache
from html import escape
from importlib import resources
from typing import Any

from torchport.report.page_data import page_data
from torchport.report.reading import Report


def render_html(report: Report, *, title: str = "torchport results", baseline: Report | None = None) -> str:
    """Return the report as a self-contained HTML page.

    The page contains its data as compressed JSON, which its script, built from `report-ui/`, renders as text.
    The page loads nothing and runs no other script.

    Args:
        report: the report that `read_report` returned.
        title: the page's heading.
        baseline: an earlier run; the page shows what changed since.

    Example:
        >>> Path("index.html").write_text(render_html(read_report(Path("out/demo"))), encoding="utf-8")
    """
    script, style = _bundled("page.js"), _bundled("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data: blob:"
    )
    blocks = "\n".join(
        f'<script type="application/octet-stream" id="data-{place}">{_compressed(data)}</script>'
        for place, data in enumerate(page_data(report, title, baseline))
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<div id="page"><noscript><p>A script in this file renders the report: allow it to run.</p></noscript></div>
{blocks}
<script>{script}</script>
</body>
</html>
"""


def _compressed(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


@cache
def _bundled(name: str) -> str:
    return resources.files("torchport.report").joinpath("page").joinpath(name).read_text(encoding="utf-8")

"""`--html FILE`: a command's report as one self-contained page."""

from __future__ import annotations

from pathlib import Path

import click

from torchport.cli.output import Output
from torchport.records import write_text
from torchport.report import Report, render_html

html_option = click.option(
    "--html",
    "html_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write one self-contained HTML file.",
)


def write_page(output: Output, report: Report, path: Path, baseline: Report | None = None) -> None:
    """Write a report as an HTML page, and print a message with its path."""
    write_text(render_html(report, baseline=baseline), path)
    output.message(f"wrote {path}")

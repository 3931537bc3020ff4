"""`torchport report`: shows the records of a directory."""

from __future__ import annotations

from pathlib import Path

import click

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.output import Output
from torchport.records import write_text
from torchport.report import read_report, render_csv, render_html, render_markdown

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=Command, short_help="Show the results that bench wrote, as Markdown, CSV or HTML.")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--csv", "csv_path", type=_FILE, metavar="FILE", help="Write the table as CSV too.")
@click.option(
    "--html", "html_path", type=_FILE, metavar="FILE", help="Write one self-contained HTML file too."
)
@click.pass_obj
def report(output: Output, directory: Path, csv_path: Path | None, html_path: Path | None) -> int:
    """Show the records under DIR as a Markdown table.

    Exits with 0, or 1 if a file there cannot be read; the others are shown all the same. In Python:
    torchport.report.read_report.

    \b
    Examples:
      torchport report out
      torchport report out --html out/index.html --csv out/results.csv
      torchport report out --json
    """
    found = read_report(directory)
    for problem in found.problems:
        output.message(f"{problem.path}: {problem.detail}")
    if csv_path is not None:
        write_text(render_csv(found), csv_path)
        output.message(f"wrote {csv_path}")
    if html_path is not None:
        write_text(render_html(found), html_path)
        output.message(f"wrote {html_path}")
    output.result(found.to_json(), lambda _: output.text(render_markdown(found)))
    return exit_codes.FINDING if found.problems else exit_codes.FINE

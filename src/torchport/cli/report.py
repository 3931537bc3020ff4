"""`torchport report`: shows a directory's records, and runs queries on a survey."""

from __future__ import annotations

from pathlib import Path

import click

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.html_option import write_page
from torchport.cli.number import Number
from torchport.cli.output import Output
from torchport.errors import ReportError
from torchport.records import refuse_links, write_text
from torchport.report import (
    DEFAULT_LIMITS,
    Limits,
    Problem,
    query_survey,
    read_report,
    render_answer,
    render_csv,
    render_markdown,
    write_survey_report,
)

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=Command, short_help="Show what bench and survey wrote, as Markdown, CSV, plots or HTML.")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--csv", "csv_path", type=_FILE, metavar="FILE", help="Also write the results table as CSV.")
@click.option(
    "-o", "--html", "html_path", type=_FILE, metavar="FILE", help="Also write one self-contained HTML file."
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Records of an earlier run; the HTML file shows what has changed since.",
)
@click.option("--plots/--no-plots", default=True, help="Plot a survey's distributions (default).")
@click.option("--sql", metavar="SELECT", help="Run this SQL query on a survey; writes no files.")
@click.option(
    "--timeout",
    type=Number(min=0, min_open=True),
    default=DEFAULT_LIMITS.seconds,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for reading or querying a survey.",
)
@click.pass_obj
def report(
    output: Output,
    directory: Path,
    csv_path: Path | None,
    html_path: Path | None,
    baseline: Path | None,
    plots: bool,
    sql: str | None,
    timeout: float,
) -> int:
    """Show the records under DIR as Markdown.

    If DIR holds a survey, also writes op statistics into it: how often each op appears, and the
    distributions of its sizes and arguments, as CSV files with plots. --sql answers any other question; the
    tables are ops, models, arguments, inputs, outputs, op_counts and configurations.

    Exits with 0, or 1 if a file there cannot be read; the others are still shown. In Python:
    torchport.report.read_report.

    \b
    Examples:
      torchport report out
      torchport report out -o out/index.html --csv out/results.csv
      torchport report out -o report.html --baseline last-week
      torchport report stat
      torchport report stat --sql "SELECT op, count(*) FROM ops GROUP BY op ORDER BY 2 DESC LIMIT 10"
      torchport report stat --sql "FROM configurations ORDER BY flops DESC LIMIT 20" --timeout 600
    """
    if sql is not None:
        if csv_path is not None or html_path is not None:
            raise click.UsageError("--sql writes no files: leave out --csv and --html")
        return _answer(output, directory, sql, Limits(seconds=timeout))
    if baseline is not None and html_path is None:
        raise click.UsageError("--baseline requires an HTML file: name it with -o")
    for path in (csv_path, html_path):
        _refuse_link(directory, path)
    with output.working("reading"):
        found = read_report(directory, Limits(seconds=timeout))
        earlier = read_report(baseline, Limits(seconds=timeout)) if baseline is not None else None
    if csv_path is not None and not found.benches:
        raise ReportError("holds no bench records, so there is no table for --csv", where=str(directory))
    if found.survey is not None:
        with output.working("writing"):
            written = write_survey_report(found.survey, directory, plots=plots)
        output.message(f"wrote {len(written):,} files to {directory}")
    if csv_path is not None:
        write_text(render_csv(found), csv_path)
        output.message(f"wrote {csv_path}")
    if html_path is not None:
        write_page(output, found, html_path, earlier)
    output.result(found.to_json(), lambda _: output.text(render_markdown(found)))
    return _name(output, found.every_problem)


def _refuse_link(directory: Path, path: Path | None) -> None:
    """Refuse to write through a symbolic link in an untrusted directory."""
    if path is not None and path.is_relative_to(directory):
        refuse_links(directory, path)


def _answer(output: Output, directory: Path, sql: str, limits: Limits) -> int:
    with output.working("querying"):
        answer = query_survey(directory, sql, limits)
    output.result(answer.to_json(), lambda _: output.text(render_answer(answer)))
    return _name(output, answer.problems)


def _name(output: Output, problems: tuple[Problem, ...]) -> int:
    """Report the files that could not be read, and return the exit code."""
    for problem in problems:
        output.message(f"{problem.path}: {problem.detail}")
    return exit_codes.FINDING if problems else exit_codes.FINE

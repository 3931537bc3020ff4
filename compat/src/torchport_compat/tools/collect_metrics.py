"""`tools/collect_metrics.py`: fills the README's results table from the records in `metrics`."""

from __future__ import annotations

from pathlib import Path

import click

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.main import run_process
from torchport.cli.output import Output
from torchport.errors import ReportError
from torchport.records import write_text
from torchport.report import fill_place, read_report
from torchport_compat.results_table import render_results

TEMPLATE = Path("docs/README.md.in")
README = Path("README.md")
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=Command)
@click.option(
    "--metrics",
    type=click.Path(path_type=Path),
    default=Path("metrics"),
    show_default=True,
    metavar="DIR",
    help="Directory of the records.",
)
@click.option(
    "--template", type=_FILE, metavar="FILE", help=f"Template; {TEMPLATE} by default, if it exists."
)
@click.option(
    "--readme", type=_FILE, default=README, show_default=True, metavar="FILE", help="File to write."
)
@click.pass_obj
def collect_metrics(output: Output, metrics: Path, template: Path | None, readme: Path) -> int:
    """Write README.md with the results between `<!-- results: begin -->` and `<!-- results: end -->`.

    The surrounding text comes from the template; without a template, from the README itself. Exits with 0,
    or 1 if a model failed or a record cannot be read.

    \b
    Examples:
      tools/collect_metrics.py
      tools/collect_metrics.py --metrics out --readme RESULTS.md
    """
    found = read_report(metrics)
    if not found.benches:
        raise ReportError(
            "contains no results",
            where=str(metrics),
            remedy="record some with tools/run_transformers.py --backend torch_ttnn",
        )
    table = render_results(found.benches)
    write_text(fill_place(_document(template, readme), "results", table), readme)
    output.message(f"wrote {readme}")
    for problem in found.every_problem:
        output.message(f"{problem.path}: {problem.detail}")
    output.result({"written": str(readme), "rows": len(found.benches)}, lambda _: output.text(table))
    fine = not found.every_problem and all(row.status != "failed" for row in found.benches)
    return exit_codes.FINE if fine else exit_codes.FINDING


def _document(template: Path | None, readme: Path) -> str:
    source = template or (TEMPLATE if TEMPLATE.is_file() else readme)
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(
            f"cannot be read: {error}", where=str(source), remedy=f"write {TEMPLATE}, or pass --template"
        ) from error
    if source == readme:
        return text
    return f"[comment]: <> (Written by tools/collect_metrics.py: change {source} instead.)\n{text}"


def main() -> None:
    """Run the command that the process was started with, and exit."""
    run_process(collect_metrics, "collect_metrics.py")


if __name__ == "__main__":
    main()

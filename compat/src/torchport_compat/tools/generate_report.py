"""`tools/generate_report.py`: tables and plots of the ops in `stat/raw`."""

from __future__ import annotations

from pathlib import Path

import click

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.main import run_process
from torchport.cli.output import Output
from torchport.report import read_survey, write_survey_report


@click.command(cls=Command)
@click.argument("directory", type=click.Path(path_type=Path), default=Path("stat"), metavar="[DIR]")
@click.pass_obj
def generate_report(output: Output, directory: Path) -> int:
    """Write the tables of a survey into DIR, `stat` by default; the same as `torchport report DIR`.

    If no backward graphs are recorded, the forward tables are also written without `fw_` in their names.
    Exits with 0, or 1 if a file there cannot be read.

    \b
    Example:
      tools/generate_report.py
    """
    with output.working("reading"):
        survey = read_survey(directory)
    with output.working("writing"):
        written = write_survey_report(survey, directory, plain_names=not survey.ops_of("bw"))
    entries = sorted({path.relative_to(directory).parts[0] for path in written})
    output.result({"written": list(entries)}, lambda _: output.text("\n".join(entries)))
    for problem in survey.problems:
        output.message(f"{problem.path}: {problem.detail}")
    return exit_codes.FINDING if survey.problems else exit_codes.FINE


def main() -> None:
    """Run the command that the process was started with, and exit."""
    run_process(generate_report, "generate_report.py")


if __name__ == "__main__":
    main()

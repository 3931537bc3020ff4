"""`tools/stat_torchvision.py`: records the ops of torchvision models in `stat/raw`."""

from __future__ import annotations

import click

from torchport.cli.command import Command
from torchport.cli.main import run_process
from torchport.cli.output import Output
from torchport_compat.tools.run_torchvision import IMAGE, torchvision_models
from torchport_compat.tools.survey_options import run_survey


@click.command(cls=Command)
@click.option(
    "--model", "named", multiple=True, metavar="NAME", help="A torchvision model; all classifiers by default."
)
@click.option(
    "--inputs", default=IMAGE, metavar="FILE.py::FUNCTION", help="The inputs; by default 1×3×224×224."
)
@click.pass_obj
def stat_torchvision(output: Output, named: tuple[str, ...], inputs: str) -> int:
    """Record the ops of torchvision models; the same as `torchport survey --zoo torchvision`.

    \b
    Example:
      tools/stat_torchvision.py
    """
    return run_survey(output, torchvision_models(named, inputs), backend="torch_stat")


def main() -> None:
    """Run the command that the process was started with, and exit."""
    run_process(stat_torchvision, "stat_torchvision.py")


if __name__ == "__main__":
    main()

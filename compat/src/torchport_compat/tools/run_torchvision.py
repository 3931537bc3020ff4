"""`tools/run_torchvision.py`: runs torchvision models on the ttnn target, or records their ops."""

from __future__ import annotations

from pathlib import Path

import click

from torchport.cli.command import Command
from torchport.cli.main import run_process
from torchport.cli.output import Output
from torchport_compat.tools.survey_options import run_survey, survey_options

IMAGE = f"{Path(__file__).with_name('image_input.py')}::image"


def torchvision_models(named: tuple[str, ...], inputs: str) -> list[str]:
    """Return `torchport survey` arguments for torchvision models; by default for all image classifiers."""
    models = [f"torchvision:{name}" for name in named] or ["--zoo", "torchvision:classification"]
    return [*models, "--no-weights", "--inputs", inputs]


@click.command(cls=Command)
@survey_options
@click.option(
    "--model", "named", multiple=True, metavar="NAME", help="A torchvision model; all classifiers by default."
)
@click.option(
    "--inputs", default=IMAGE, metavar="FILE.py::FUNCTION", help="The inputs; by default 1×3×224×224."
)
@click.pass_obj
def run_torchvision(
    output: Output,
    backend: str,
    backward: bool,
    profile: bool,
    directory: str | None,
    named: tuple[str, ...],
    inputs: str,
) -> int:
    """Run torchvision models with random weights; the same as `torchport survey`.

    \b
    Examples:
      tools/run_torchvision.py --backend torch_stat --backward --profile
      tools/run_torchvision.py --backend torch_ttnn --model resnet18
    """
    models = torchvision_models(named, inputs)
    return run_survey(
        output, models, backend=backend, backward=backward, profile=profile, directory=directory
    )


def main() -> None:
    """Run the command that the process was started with, and exit."""
    run_process(run_torchvision, "run_torchvision.py")


if __name__ == "__main__":
    main()

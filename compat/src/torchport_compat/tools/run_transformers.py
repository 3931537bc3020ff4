"""`tools/run_transformers.py`: runs a model from the hub on the ttnn target, or records its ops."""

from __future__ import annotations

import click

from torchport.cli.command import Command
from torchport.cli.main import run_process
from torchport.cli.output import Output
from torchport_compat.tools.survey_options import run_survey, survey_options


@click.command(cls=Command)
@click.option(
    "--model", required=True, metavar="NAME", help="A name on the hub, a folder, or a torchport model name."
)
@survey_options
@click.option("--no-weights", is_flag=True, help="Random weights; only the configuration is needed.")
@click.pass_obj
def run_transformers(
    output: Output,
    model: str,
    backend: str,
    backward: bool,
    profile: bool,
    directory: str | None,
    no_weights: bool,
) -> int:
    """Run a transformers model; the same as `torchport survey --model NAME`.

    \b
    Examples:
      tools/run_transformers.py --model phiyodr/bert-large-finetuned-squad2 --backend torch_ttnn
      tools/run_transformers.py --model hf-small:bert --backend torch_stat
    """
    models = ["--model", model, *["--no-weights"] * no_weights]
    return run_survey(
        output, models, backend=backend, backward=backward, profile=profile, directory=directory
    )


def main() -> None:
    """Run the command that the process was started with, and exit."""
    run_process(run_transformers, "run_transformers.py")


if __name__ == "__main__":
    main()

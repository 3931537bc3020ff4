"""`tt-model-analysis`: the unique modules and ops of a model, as two files."""

from __future__ import annotations

import click

from torchport.cli.command import Command
from torchport.cli.main import run, run_process
from torchport.cli.output import Output
from torchport_compat.naming import claim


@click.command(cls=Command)
@click.option(
    "--model-path", required=True, metavar="FILE.py::FUNCTION", help="A function that returns the model."
)
@click.option(
    "--inputs-path", required=True, metavar="FILE.py::FUNCTION", help="A function that returns its inputs."
)
@click.option("--dir", "directory", metavar="DIR", help="Output directory; ./<ModelClassName>/ by default.")
@click.pass_obj
def model_analysis(output: Output, model_path: str, inputs_path: str, directory: str | None) -> int:
    """Write unique_modules.json and pytorch_ops.json of a model; the same as `torchport analyze`.

    \b
    Example:
      tt-model-analysis --model-path my_model.py::load_model --inputs-path my_model.py::get_inputs
    """
    claim("model_analysis")
    where = [] if directory is None else ["--dir", directory]
    return run(["analyze", "--inputs", inputs_path, *where, "--", model_path], output)


def main() -> None:
    """Run the command that the process was started with, and exit."""
    run_process(model_analysis, "tt-model-analysis")

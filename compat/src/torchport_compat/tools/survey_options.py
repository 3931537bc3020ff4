"""Shared by the tools that run models: their options, and the survey that each runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from torchport.cli.main import run
from torchport.cli.output import Output

# A backend of torch_ttnn's tools → the backend of `torchport survey`, and the folder for its records.
BACKENDS = {"torch_ttnn": ("ttnn", "metrics"), "torch_stat": ("stat", "stat")}

Function = TypeVar("Function", bound=Callable[..., object])


def survey_options(function: Function) -> Function:
    """Add `--backend`, `--backward`, `--profile` and `-o`."""
    for option in reversed(
        (
            click.option(
                "--backend",
                type=click.Choice(list(BACKENDS)),
                default="torch_ttnn",
                show_default=True,
                help="`torch_ttnn` runs models on the ttnn target, `torch_stat` records their ops.",
            ),
            click.option(
                "--backward", is_flag=True, help="With torch_stat: also record the backward graphs."
            ),
            click.option(
                "--profile", is_flag=True, help="With torch_stat: also profile a run with real values."
            ),
            click.option(
                "-o",
                "--output",
                "directory",
                metavar="DIR",
                help="Directory for the records; `stat` or `metrics` by default.",
            ),
        )
    ):
        function = option(function)
    return function


def run_survey(
    output: Output,
    models: Sequence[str],
    *,
    backend: str,
    backward: bool = False,
    profile: bool = False,
    directory: str | None = None,
) -> int:
    """Run `torchport survey` with the given model arguments, and return its exit code."""
    chosen, default_directory = BACKENDS[backend]
    flags = ["--backward"] * backward + ["--profile"] * profile
    where = ["-o", directory or default_directory]
    return run(["survey", *models, "--backend", chosen, *flags, *where], output)

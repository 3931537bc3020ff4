"""`torchport new-target`: writes a project for a new target, whose tests already pass."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.output import Output


@click.command("new-target", cls=Command, short_help="Write a project for a new target, with passing tests.")
@click.argument("name")
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(path_type=Path),
    help="The project's folder; ./NAME by default.",
)
@click.pass_obj
def new_target(output: Output, name: str, directory: Path | None) -> int:
    """Write a project with the target NAME: a hundred lines on top of NumPy, an entry point, and tests.

    Its tests pass as they are: a sweep of its ops, whole models, and the output of `explain`. Replace the
    kernels with the device's, one at a time.

    In Python: torchport.targets.new_target.

    \b
    Examples:
      torchport new-target my_chip
      torchport new-target my_chip -o ~/projects/my_chip
    """
    from torchport.targets import new_target as write_project

    written = write_project(name, directory)
    folder = written[0].parent
    data = {"name": name, "directory": str(folder), "files": [str(path) for path in written]}

    def show(console: Console) -> None:
        for path in written:
            console.print(Text(str(path)))
        console.print(Text(f"cd {folder} && pytest"))

    output.result(data, show)
    return exit_codes.FINE

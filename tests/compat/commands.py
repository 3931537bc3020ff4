"""Runs a command of torchport-compat in this process."""

import io
import shlex
from dataclasses import dataclass

import click
from rich.console import Console

from torchport.cli.main import run
from torchport.cli.output import Output


@dataclass(frozen=True)
class Done:
    """The outcome of a command: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str


def run_here(command: click.Command, arguments: str = "") -> Done:
    """Run a command with arguments given as a command line."""
    out, err = io.StringIO(), io.StringIO()
    given = shlex.split(arguments)
    output = Output(Console(file=out, width=200), Console(file=err, width=200), json="--json" in given)
    return Done(run(given, output, command, command.name), out.getvalue(), err.getvalue())

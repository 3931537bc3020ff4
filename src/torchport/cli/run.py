"""`torchport run`: loads a compiled model from a file, runs it, and shows its results."""

from __future__ import annotations

import importlib
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.coverage_view import facts_table
from torchport.cli.output import Output
from torchport.cli.text import printable_json, seconds
from torchport.errors import PackageError, one_line
from torchport.records import PackageRun, TensorSpec


@click.command(cls=Command, name="run", short_help="Run a compiled model from a file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--inputs", metavar="FILE.py::FUNCTION", help="A function that returns the inputs.")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="A library whose ops FILE may call, such as torchvision; it is imported. Repeatable.",
)
@click.pass_obj
def run_command(output: Output, file: Path, inputs: str | None, namespaces: tuple[str, ...]) -> int:
    """Load the compiled model in FILE (.pt2), run it twice, and show the first call's results.

    Without --inputs, it runs on random floats and on zeros for integers. Exits with 0, or 2 if it failed.
    In Python: torchport.run_package.

    \b
    Examples:
      torchport run resnet18.pt2
      torchport run resnet18.pt2 --inputs my_model.py::inputs --json
    """
    with output.working(f"Running {file}"):
        from torchport.packaging.run_file import run_package
        from torchport.zoo.user_file import load_inputs

        _import_libraries(namespaces)
        given = None if inputs is None else load_inputs(inputs)
        args, kwargs = (None, None) if given is None else (given.args, given.kwargs)
        found = run_package(file, args, kwargs, namespaces=namespaces)
        found = PackageRun.from_json(printable_json(found.to_json()))
    output.result(found.to_json(), lambda console: _show(found, console))
    return exit_codes.FINE


def _import_libraries(names: tuple[str, ...]) -> None:
    """Import the libraries that the user names, so that torch knows their ops."""
    for name in names:
        if name == "torchvision":
            from torchport.zoo.torchvision_ops import ensure_torchvision_ops

            ensure_torchvision_ops()
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise PackageError(f"the library {name!r} cannot be imported: {one_line(error)}") from error


def _show(found: PackageRun, console: Console) -> None:
    console.print(f"{found.model} on {found.target}", style="bold", markup=False)
    facts = facts_table()
    facts.add_row("Loaded in", seconds(found.load_time))
    facts.add_row("First call", seconds(found.first_call_time))
    facts.add_row("Second call", seconds(found.call_time))
    console.print(facts)
    console.print()
    table = Table(box=None, pad_edge=False)
    table.add_column("output")
    table.add_column("tensor")
    for name in ("min", "max", "mean"):
        table.add_column(name, justify="right")
    for row in found.outputs:
        numbers = ["" if value is None else f"{value:.6g}" for value in (row.minimum, row.maximum, row.mean)]
        table.add_row(row.path, str(TensorSpec(row.shape, row.dtype)), *numbers)
    console.print(table)

"""`torchport targets`: lists the targets, which of them work here, and their options."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.output import Output
from torchport.records import TargetStatus


@click.command(cls=Command, short_help="List targets, whether they work here, and their options.")
@click.pass_obj
def targets(output: Output) -> int:
    """List the targets: which work here, why others do not, and each target's options.

    In Python: torchport.bringup.describe_targets.

    \b
    Examples:
      torchport targets
      torchport targets --json
    """
    with output.working("Looking for targets"):
        from torchport.bringup import describe_targets

        found = describe_targets()
    output.result([target.to_json() for target in found], lambda console: _show(found, console))
    return exit_codes.FINE


def _show(found: Sequence[TargetStatus], console: Console) -> None:
    console.print(targets_table(found))
    for target in found:
        options = ", ".join(f"{name}={default}" for name, default in target.options.items())
        console.print(Text(f"{target.name} --option: {options}"))


def targets_table(found: Sequence[TargetStatus]) -> Table:
    """Return a table of which targets work here, and why not."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("Target", no_wrap=True)
    table.add_column("Works", no_wrap=True)
    table.add_column("Devices", overflow="fold")
    table.add_column("What it is", overflow="fold")
    table.add_column("Found", overflow="fold")
    for target in found:
        detail = Text(target.detail)
        if target.remedy and not target.ok:
            detail.append(f"\n→ {target.remedy}", style="dim")
        table.add_row(
            Text(target.name),
            "✅" if target.ok else "❌",
            Text(", ".join(target.devices) or "-"),
            Text(target.description),
            detail,
        )
    return table

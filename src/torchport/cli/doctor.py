"""`torchport doctor`: shows what is installed, what works here, and why the rest does not."""

from __future__ import annotations

import click
from rich.console import Console
from rich.text import Text

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.coverage_view import facts_table
from torchport.cli.output import Output
from torchport.cli.targets import targets_table
from torchport.cli.text import quantity
from torchport.records import Check, Installation


@click.command(cls=Command, short_help="Show what is installed, and what works here.")
@click.pass_obj
def doctor(output: Output) -> int:
    """Show what is installed, which targets work here and why others do not, and if torch finds torchport.

    Exits with 1 if something needs a fix. In Python: torchport.bringup.describe_installation.

    \b
    Examples:
      torchport doctor
      torchport doctor --json
    """
    with output.working("Checking the installation"):
        from torchport.bringup import describe_installation

        found = describe_installation()
    output.result(found.to_json(), lambda console: _show(found, console))
    return exit_codes.FINE if found.ok else exit_codes.FINDING


def _show(found: Installation, console: Console) -> None:
    facts = facts_table()
    for name, version in found.versions.items():
        facts.add_row(name, Text(version) if version else Text("not installed", style="dim"))
    facts.add_row("", "")
    for name, value in found.machine.items():
        facts.add_row(name, Text(value))
    facts.add_row("cache", Text(f"{found.cache_path} ({quantity(found.cache_bytes, 'B', base=1024)})"))
    console.print(facts)
    console.print()
    for check in found.checks:
        console.print(_line(check))
    console.print(targets_table(found.targets))


def _line(check: Check) -> Text:
    text = Text(f"{'✅' if check.ok else '❌'} {check.name}: {check.detail}")
    if check.remedy and not check.ok:
        text.append(f"\n   → {check.remedy}", style="dim")
    return text

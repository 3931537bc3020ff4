"""`torchport-compat`: which of the names are torchport's here."""

from __future__ import annotations

import click
from rich.console import Console
from rich.text import Text

from torchport.cli import exit_codes
from torchport.cli.command import Command
from torchport.cli.main import run_process
from torchport.cli.output import Output
from torchport_compat.naming import FOLDER, NAMES, comes_first, locate


@click.command(cls=Command)
@click.pass_obj
def names(output: Output) -> int:
    """Say of each name whether it is torchport's here, or the real package's.

    A real package is used where there is one; torchport's of that name then refuses to be imported. Exits
    with 0 if all names are torchport's, 1 if one is not.

    \b
    Examples:
      torchport-compat
      torchport-compat --json
    """
    found = [_describe(name) for name in NAMES]
    output.result({"names": found}, lambda console: _show(found, console))
    return exit_codes.FINE if all(entry["ok"] for entry in found) else exit_codes.FINDING


def _describe(name: str) -> dict[str, str | bool]:
    other = locate(name)
    if other is None:
        found = comes_first(name)
        path = str(FOLDER / name) if found else ""
        detail = "torchport's" if found else "not on Python's path: install torchport-compat again"
        return {"name": name, "ok": found, "path": path, "detail": detail}
    detail = "the real package; torchport's is not used"
    if comes_first(name):
        detail = "the real package, behind torchport's, which refuses to be imported: uninstall one of them"
    return {"name": name, "ok": False, "path": str(other), "detail": detail}


def _show(found: list[dict[str, str | bool]], console: Console) -> None:
    width = max(len(str(entry["name"])) for entry in found)
    for entry in found:
        mark = "✅" if entry["ok"] else "❌"
        line = Text(f"{mark}  {entry['name']:<{width}}  {entry['detail']}  {entry['path']}")
        console.print(line, soft_wrap=True)  # a path that is to be copied must stay whole


def main() -> None:
    """Run the command that the process was started with, and exit."""
    run_process(names, "torchport-compat")

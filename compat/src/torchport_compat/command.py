"""`torchport-compat`: shows which of the names refer to torchport here."""

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
    """Show for each name whether it refers to torchport's package here, or to the real one.

    A real package takes precedence; torchport's package of that name then refuses to be imported. Exits
    with 0 if all names refer to torchport's packages, 1 if one does not.

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
        detail = "torchport's" if found else "not on Python's path: reinstall torchport-compat"
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
        console.print(line, soft_wrap=True)  # not wrapped, so that the path can be copied


def main() -> None:
    """Run the command that the process was started with, and exit."""
    run_process(names, "torchport-compat")

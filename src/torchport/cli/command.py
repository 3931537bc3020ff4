"""Base classes of all commands: `--json`, `--debug`, and suggestions for unknown command names."""

from __future__ import annotations

import click

from torchport.cli.output import Output
from torchport.errors import nearest


class Command(click.Command):
    """A command that prints only its result, and accepts `--json` and `--debug`.

    `main` looks for these two in the arguments itself, since it needs them for errors that occur before
    a command is found. They are declared here so that the help lists them.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.params.append(_flag("--json", "Print one JSON document."))
        self.params.append(_flag("--debug", "Show tracebacks, warnings and logs."))

    def invoke(self, ctx: click.Context) -> object:
        """Run the command, keeping everything but its result off standard output."""
        output: Output = ctx.obj
        output.take_process()
        return super().invoke(ctx)


class Group(click.Group):
    """A group that suggests the nearest command for an unknown name."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"no command {name!r}: {nearest(name, self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a user meets them, not alphabetically."""
        return list(self.commands)


def _flag(name: str, text: str) -> click.Option:
    return click.Option([name], is_flag=True, expose_value=False, help=text)

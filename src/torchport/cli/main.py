"""Entry point of the command `torchport`: dispatches to a command, and turns every failure into one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from torchport.cli import exit_codes
from torchport.cli.analyze import analyze
from torchport.cli.bench import bench
from torchport.cli.codegen import codegen
from torchport.cli.command import Group
from torchport.cli.compile import compile_command
from torchport.cli.doctor import doctor
from torchport.cli.explain import explain
from torchport.cli.generate import generate
from torchport.cli.inspect import inspect
from torchport.cli.new_target import new_target
from torchport.cli.output import Output
from torchport.cli.profile import profile_command
from torchport.cli.quantize import quantize
from torchport.cli.report import report
from torchport.cli.run import run_command
from torchport.cli.survey import survey
from torchport.cli.targets import targets
from torchport.errors import TorchportError, one_line
from torchport.version import __version__


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="torchport")
def cli() -> None:
    """Bring up a PyTorch model on an accelerator, and prove that it works there.

    Every command has --json, and exits with 0 (ok), 1 (a finding: an op stays on the host, a result is
    inaccurate) or 2 (an error).

    \b
    Examples:
      torchport doctor
      torchport analyze torchvision:resnet18
      torchport explain torchvision:resnet18 --no-weights
      torchport compile torchvision:resnet18 --no-weights --target openvino
      torchport profile torchvision:resnet18 --no-weights
      torchport codegen torchvision:resnet18 --no-weights -o resnet.py
      torchport bench torchvision:resnet18 --no-weights -o out
      torchport survey --zoo torchvision --backward -o stat
      torchport report out --html out/index.html
    """


for _command in (
    analyze,
    explain,
    compile_command,
    run_command,
    inspect,
    codegen,
    quantize,
    generate,
    profile_command,
    bench,
    survey,
    report,
    targets,
    doctor,
    new_target,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command that the process was started with, and exit."""
    run_process(cli, "torchport")


def run_process(command: click.Command, name: str) -> NoReturn:
    """Run a command with the process's arguments, and exit.

    Args:
        command: the command to run.
        name: the program's name, as its help shows it.
    """
    arguments = sys.argv[1:]
    output = Output.of_process(json="--json" in arguments, debug="--debug" in arguments)
    code = run(arguments, output, command, name)
    if output.failure:
        output.message(output.failure)
        code = exit_codes.FAILED
    sys.exit(code)


def run(
    arguments: Sequence[str], output: Output, command: click.Command = cli, name: str = "torchport"
) -> int:
    """Run a command and return its exit code; any failure is reported in one line.

    Args:
        arguments: the command line, without the program's name.
        output: where the command writes.
        command, name: the command and the program's name; `torchport` by default.
    """
    try:
        code = command.main(args=list(arguments), prog_name=name, standalone_mode=False, obj=output)
        return code if isinstance(code, int) else exit_codes.FINE
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return exit_codes.FAILED
    except click.ClickException as error:
        return _fail(output, _usage_error(error))
    except (click.Abort, KeyboardInterrupt):
        output.message("interrupted")
        return exit_codes.INTERRUPTED
    except TorchportError as error:
        if output.debug:
            output.err.print_exception()
        return _fail(output, error.to_json(), str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a model's or a library's own code may raise anything
        if output.debug:
            output.err.print_exception()
        remedy = "" if output.debug else "run with --debug for the traceback"
        text = one_line(error)
        data = {"error": type(error).__name__, "what": text, "where": "", "remedy": remedy}
        return _fail(output, data, f"{text}\n{remedy}".rstrip())


def _usage_error(error: click.ClickException) -> dict[str, str]:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "torchport"
    return {
        "error": "UsageError",
        "what": " ".join(error.format_message().split()).rstrip("."),
        "where": path,
        "remedy": f"see `{path} --help`",
    }


def _fail(output: Output, data: dict[str, str], text: str = "") -> int:
    """Report a failure: as JSON in place of the result, or in one line on stderr."""
    if output.json:
        output.json_text(data, indent=2)
    else:
        output.message(text or f"{data['where']}: {data['what']} ({data['remedy']})")
    return exit_codes.FAILED

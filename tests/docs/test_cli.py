"""docs/cli.md documents every command and option that there is, and none that there is not."""

import importlib
import re

import click
import pytest

from docs.markdown import sections
from torchport.cli import exit_codes
from torchport.cli.main import cli

_OPTION_ROW = re.compile(r"^\| (`-[^|]+) \|", re.M)
_CALL = re.compile(r"In Python: `(torchport[\w.]+)`")


@pytest.fixture
def document(root) -> dict[str, str]:
    return sections(root / "docs" / "cli.md")


def documented_options(text: str) -> set[str]:
    return {name for row in _OPTION_ROW.findall(text) for name in re.findall(r"`(-[^`]+)`", row)}


def own_options(command: click.Command) -> set[str]:
    return {
        name for param in command.params if isinstance(param, click.Option) for name in param.opts
    } - SHARED


SHARED = {"--json", "--debug"}


def test_every_command_is_documented_and_no_other(document):
    assert [f"torchport {name}" for name in cli.commands] == [
        heading for heading in document if heading.startswith("torchport ")
    ]


@pytest.mark.parametrize("name", list(cli.commands))
def test_every_option_is_documented_and_no_other(document, name):
    assert documented_options(document[f"torchport {name}"]) == own_options(cli.commands[name])


def test_options_of_every_command_are_documented_once(document):
    assert documented_options(document["Every command"]) == SHARED | {"-h", "--help"}
    for command in cli.commands.values():
        assert {name for param in command.params for name in param.opts} >= SHARED


@pytest.mark.parametrize("name", list(cli.commands))
def test_the_python_call_exists_and_is_the_one_that_the_help_names(document, name):
    [call] = _CALL.findall(document[f"torchport {name}"])
    module, _, function = call.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))
    assert f"In Python: {call}" in " ".join((cli.commands[name].help or "").split())


@pytest.mark.parametrize("name", list(cli.commands))
def test_exit_codes_are_documented(document, name):
    assert "Exit codes: 0" in document[f"torchport {name}"]


def test_every_exit_code_has_its_row(document):
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", document["Every command"], re.M)}
    assert rows == {value for key, value in vars(exit_codes).items() if key.isupper()}


def test_every_command_has_an_example(document):
    for name in cli.commands:
        assert f"```console\n$ torchport {name}" in document[f"torchport {name}"]


@pytest.mark.parametrize("name", list(cli.commands))
def test_the_help_shows_an_example(name):
    examples = (cli.commands[name].help or "").partition("Example")[2]
    assert re.search(rf"^ *torchport {name}( |$)", examples, re.M)

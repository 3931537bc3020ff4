"""The consoles of a command."""

import io
import json

import pytest
from rich.console import Console

from torchport.cli.output import Output


@pytest.fixture
def streams():
    return io.StringIO(), io.StringIO()


def output(streams, **more):
    return Output(Console(file=streams[0], width=20), Console(file=streams[1], width=20), **more)


def test_a_result_is_rendered_or_json(streams):
    output(streams).result({"a": 1}, lambda console: console.print("rendered"))
    assert streams[0].getvalue() == "rendered\n"
    output(streams, json=True).result({"a": "é" * 50}, lambda console: pytest.fail("not rendered"))
    assert json.loads(streams[0].getvalue().removeprefix("rendered\n")) == {"a": "é" * 50}


def test_messages_are_not_wrapped_and_have_no_markup(streams):
    output(streams).message("a [red]long[/red] line that is longer than the console")
    assert streams[1].getvalue() == "a [red]long[/red] line that is longer than the console\n"
    assert streams[0].getvalue() == ""


def test_work_is_shown_on_a_terminal_only(streams):
    with output(streams).working("Loading"):
        pass
    assert streams[1].getvalue() == ""
    on_terminal = Output(Console(file=streams[0]), Console(file=streams[1], force_terminal=True))
    with on_terminal.working("Loading"):
        pass
    assert "Loading" in streams[1].getvalue()

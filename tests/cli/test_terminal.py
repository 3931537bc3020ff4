"""Control characters from files are shown on a terminal, never interpreted."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchport.cli.output import Output
from torchport.cli.terminal import guard, json_text, printable
from torchport.records import BenchRecord, SurveyRow, write_record

COMMANDS = {
    "clear": "\x1b[2J",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://x.example\x1b\\click\x1b]8;;\x1b\\",
    "c1 sequence": "\x9b31m",
    "carriage return": "fine\rFAKE",
    "backspace": "abc\x08\x08\x08",
    "override": "\u202egnp.exe",
    "isolate": "\u2066x\u2069",
    "null": "\x00",
    "delete": "\x7f",
    "half a pair": "\udc80",
}
FORBIDDEN = [chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066, 0xDC80)]


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS)
def test_control_characters_are_replaced(text):
    shown = printable(text)
    assert not any(sign in shown for sign in FORBIDDEN)
    assert len(shown) == len(text)


def test_other_text_stays_as_it_is():
    text = "naïve ✅ 模型 👩‍🔬\n\tπ → [red]"
    assert printable(text) == text


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS)
def test_json_round_trips_and_contains_no_control_characters(text):
    written = json_text({"name": text, text: [text]}, indent=2)
    assert not any(sign in written for sign in FORBIDDEN)
    assert json.loads(written) == {"name": text, text: [text]}


def render(*renderables, **settings):
    stream = io.StringIO()
    console = guard(Console(file=stream, width=200, highlight=False, **settings))
    for renderable in renderables:
        console.print(renderable, style="bold")
    return stream.getvalue()


def tables(text):
    table = Table()
    table.add_column(text)
    table.add_row(text)
    table.add_row(Text(text))
    return table


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS)
def test_a_console_makes_control_characters_in_text_and_tables_visible(text):
    shown = render(text, Text(text), tables(text))
    assert not any(sign in shown for sign in FORBIDDEN)
    assert shown.count(printable(text)) >= 3  # rich itself drops some of a Text


def test_a_console_keeps_its_own_colours():
    shown = render("name\x1b[31m", force_terminal=True, color_system="standard")
    assert shown == "\x1b[1mname␛[31m\x1b[0m\n"


@pytest.mark.parametrize("text", ["[red]red[/red]", "[link=http://x.example]click[/link]", ":smile:", "[/]"])
def test_brackets_are_not_markup(text):
    shown = render(text, tables(text), force_terminal=True, color_system="standard")
    assert shown.count(text) == 4
    assert "\x1b]8" not in shown


def test_status_text_has_no_markup():
    stream = io.StringIO()
    output = Output(Console(file=io.StringIO()), Console(file=stream, force_terminal=True, width=80))
    with output.working("Loading [red]a[/red]\x1b]0;t\x07"):
        pass
    assert "[red]a[/red]␛]0;t" in stream.getvalue()
    assert "\x1b]0" not in stream.getvalue()


HOSTILE = "".join(COMMANDS.values()).replace("\udc80", "") + "[red]x[/red]"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_control_character_of_a_record_reaches_a_report(command, tmp_path, form):
    record = BenchRecord(HOSTILE, HOSTILE, "failed", error=f"no {HOSTILE}", versions={HOSTILE: HOSTILE})
    write_record(record, tmp_path / "bench" / "a.json")
    write_record(SurveyRow(HOSTILE, "raised", error=HOSTILE), tmp_path / "rows" / "a.json")
    (tmp_path / "bench" / f"b{HOSTILE.replace('/', '').replace(chr(0), '')}.json").write_text(
        '{"schema": "torchport.bench/0\\u001b[2J"}'
    )
    ran = command("report", tmp_path, *form)
    assert ran.code == 1
    assert not any(sign in ran.out + ran.err for sign in FORBIDDEN)
    assert "[red]x[/red]" in ran.out


def test_no_control_character_of_an_argument_reaches_the_terminal(command):
    ran = command("report", "no\x1b[2J\x9b31mway")
    assert "no␛[2J" in ran.err
    assert not any(sign in ran.err for sign in FORBIDDEN)
    ran = command("bnech\x1b[2J")
    assert not any(sign in ran.err for sign in FORBIDDEN)


def test_debug_logs_and_tracebacks_contain_no_control_characters(tmp_path):
    folder = tmp_path / "x\x1b[2J"
    code = (
        "import logging, sys, warnings\n"
        "from torchport.cli.output import Output\n"
        "output = Output.of_process(json=False, debug=True)\n"
        "output.take_process()\n"
        "logging.getLogger('torchport').debug('at %s', sys.argv[1])\n"
        "warnings.warn(sys.argv[1])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.stderr.count("x␛[2J") == 2
    assert "\x1b" not in ran.stderr

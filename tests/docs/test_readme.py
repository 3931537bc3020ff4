"""What README.md shows works: its Python and its commands are run, and its links lead somewhere."""

import importlib
import io
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from docs.markdown import blocks, links
from torchport.cli.main import cli, run
from torchport.cli.output import Output


@pytest.fixture
def readme(root) -> Path:
    return root / "README.md"


def test_python_blocks_run_one_after_another(readme, tmp_path):
    code = [block.text for block in blocks(readme) if block.kind == "python" and not block.file]
    assert len(code) >= 3
    # From a file, so that a message can name the line.
    script = tmp_path / "quick_start.py"
    script.write_text("\n\n".join(code))
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "quick_start"})


def test_commands_run(readme, tmp_path):
    for block in blocks(readme):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    commands = [
        line.removeprefix("$ ")
        for block in blocks(readme)
        if block.kind == "console"
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]
    assert {shlex.split(command)[1] for command in commands} == set(cli.commands)
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "torchport"
        out, err = io.StringIO(), io.StringIO()
        code = run(arguments, Output(Console(file=out, width=140), Console(file=err, width=140)))
        assert code == 0, f"{command}\n{out.getvalue()}\n{err.getvalue()}"
        assert out.getvalue(), command
    assert (tmp_path / "out" / "index.html").is_file()


def test_every_command_stands_in_the_table_with_its_python_call(readme):
    rows = re.findall(r"^\| `torchport (\w+).*\| `(torchport[\w.]+)` \|$", readme.read_text(), re.M)
    assert {command for command, _ in rows} == set(cli.commands)
    for _, call in rows:
        module, _, function = call.rpartition(".")
        assert callable(getattr(importlib.import_module(module), function)), call


def test_links_lead_to_files(readme):
    found = links(readme)
    assert found
    for link in found:
        assert (readme.parent / link).exists(), link


def test_results_have_their_marked_places(readme):
    text = readme.read_text()
    for place in ("results", "benchmarks"):
        assert 0 < text.index(f"<!-- {place}: begin -->") < text.index(f"<!-- {place}: end -->")

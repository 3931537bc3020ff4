"""Who has the README alone gets from nothing to a report of a model of their own, in an empty folder."""

import os
import shlex
import subprocess
import sys

import pytest

from docs.markdown import blocks
from report.pages import data_of
from torchport.records import BenchRecord
from torchport.report import read_report


@pytest.mark.usefixtures("forked_python")
def test_the_two_commands_of_the_readme_write_a_report(root, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    shown = list(blocks(root / "README.md"))
    [model] = [block for block in shown if block.file]
    (folder / model.file).write_text(model.text)
    [commands] = [block.text.splitlines() for block in shown if block.kind == "console"]
    assert len(commands) == 2
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for command in commands:
        arguments = shlex.split(command.removeprefix("$ torchport "))
        done = subprocess.run(
            [sys.executable, "-m", "torchport", *arguments],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    rows: list[BenchRecord] = list(read_report(folder / "out").benches)
    assert {row.target for row in rows} == {"openvino", "ttnn"}
    assert all(row.model == "net.py::load" and row.status == "ok" for row in rows)
    page = (folder / "out" / "index.html").read_text(encoding="utf-8")
    shown_rows = data_of(page)["rows"]
    assert {(row["model"], row["target"]) for row in shown_rows} == {(row.model, row.target) for row in rows}

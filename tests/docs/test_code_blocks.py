"""Every code block of every document runs, in order, in an empty folder.

A comment before a block says what else it is: `<!-- file: NAME -->`, a file that later blocks use;
`<!-- excerpt: NAME -->`, lines of a file that earlier blocks wrote; `<!-- not run: REASON -->`.
A command exits with 0, or with what `# exit code N` behind it says.
"""

import io
import json
import os
import re
import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from rich.console import Console

from docs.example_target import install
from docs.markdown import DOCUMENTS, Block, blocks
from torchport.cli.main import run
from torchport.cli.output import Output
from torchport.report import query_survey
from torchport.targets import registry
from torchport.targets.graph_json import decode_graph, encode_graph

pytestmark = pytest.mark.usefixtures("forked_python")

# What no test runs, by document. A block joins them only for a reason that no smaller size takes away.
NOT_RUN = {
    "report.md": 1, "CONTRIBUTING.md": 1, "README.md": 2, "cli.md": 1, "ttnn.md": 1, "tutorial.md": 1,
    "new_target.md": 1, "quantization.md": 1,
}  # fmt: skip


def run_python(block: Block, names: dict[str, object]) -> None:
    # From a file, so that a message can name the line.
    script = Path(f"line_{block.line}.py")
    script.write_text(block.text)
    exec(compile(block.text, str(script.resolve()), "exec"), names)


def run_console(block: Block, names: dict[str, object]) -> None:
    for line in block.text.splitlines():
        assert line.startswith("$ torchport "), f"{line!r} is not a command of torchport"
        out, err = io.StringIO(), io.StringIO()
        arguments = shlex.split(line, comments=True)[2:]
        wide = Output(Console(file=out, width=140), Console(file=err, width=140), json="--json" in arguments)
        code = run(arguments, wide)
        expected = re.search(r"# exit code (\d)", line)
        assert code == int(expected[1] if expected else 0), f"{line}\n{out.getvalue()}\n{err.getvalue()}"
        assert out.getvalue(), line


def run_sql(block: Block, names: dict[str, object]) -> None:
    for question in block.text.split(";\n"):
        assert query_survey(Path("stat"), question).columns


def install_target(block: Block, names: dict[str, object]) -> None:
    [entry] = re.findall(r'^numpy = "(.+)"$', block.text, re.M)
    install(entry, Path.cwd())
    registry._all.cache_clear()


def check_graph(block: Block, names: dict[str, object]) -> None:
    graph = json.loads(block.text)
    assert encode_graph(decode_graph(graph, {"weight": torch.ones(2, 2)}).graph) == graph | {
        "tensors": ["t0"]
    }


RUN = {
    "python": run_python,
    "console": run_console,
    "sql": run_sql,
    "toml": install_target,
    "json": check_graph,
}
WITH_BLOCKS = [path for path in DOCUMENTS if any(blocks(path))]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that Python imports from; modules and targets that are there are forgotten after."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
            del sys.modules[name]
    registry._all.cache_clear()


@pytest.mark.parametrize("document", WITH_BLOCKS, ids=lambda path: path.name)
def test_every_block_runs(document, folder):
    names: dict[str, object] = {"__name__": document.stem}
    for block in blocks(document):
        if block.file:
            Path(block.file).write_text(block.text)
        elif block.excerpt:
            assert set(block.text.splitlines()) <= set(Path(block.excerpt).read_text().splitlines())
        elif not block.not_run and block.kind != "text":
            RUN[block.kind](block, names)


def test_what_is_not_run_is_counted_and_has_a_reason():
    marked = [(path.name, block) for path in DOCUMENTS for block in blocks(path) if block.not_run]
    assert Counter(name for name, _ in marked) == NOT_RUN
    assert all(len(block.not_run.split()) >= 3 for _, block in marked)


def test_no_fence_is_overlooked():
    for path in DOCUMENTS:
        fences = re.findall(r"^ *(?:```|~~~)", path.read_text(), re.M)
        assert len(fences) == 2 * len(list(blocks(path))), path.name

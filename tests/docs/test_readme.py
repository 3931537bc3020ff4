"""README.md names every command, and has a place for every table."""

import importlib
import re
from pathlib import Path

import pytest

from torchport.cli.main import cli


@pytest.fixture
def readme(root) -> Path:
    return root / "README.md"


def test_every_command_stands_in_the_table_with_its_python_call(readme):
    rows = re.findall(r"^\| `torchport (\w+).*\| `(torchport[\w.]+)` \|$", readme.read_text(), re.M)
    assert {command for command, _ in rows} == set(cli.commands)
    for _, call in rows:
        module, _, function = call.rpartition(".")
        assert callable(getattr(importlib.import_module(module), function)), call


def test_results_have_their_marked_places(readme):
    text = readme.read_text()
    for place in ("results", "benchmarks"):
        assert 0 < text.index(f"<!-- {place}: begin -->") < text.index(f"<!-- {place}: end -->")

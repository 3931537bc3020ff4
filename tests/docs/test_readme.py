"""README.md says what torchport is, names every command, and proves what it says beside other tools."""

import importlib
import re
from pathlib import Path

import pytest

from torchport.cli.main import cli


@pytest.fixture
def readme(root) -> Path:
    return root / "README.md"


def test_every_command_stands_in_the_table_with_its_python_call(readme):
    rows = re.findall(r"^\| `torchport ([\w-]+).*\| `(torchport[\w.]+)` \|$", readme.read_text(), re.M)
    assert {command for command, _ in rows} == set(cli.commands)
    for _, call in rows:
        module, _, function = call.rpartition(".")
        assert callable(getattr(importlib.import_module(module), function)), call


def test_every_row_of_the_feature_table_links_to_its_proof(readme, root):
    table = readme.read_text().partition("<!-- features: begin -->")[2].partition("<!-- features: end -->")[0]
    rows = table.strip().splitlines()[2:]
    assert len(rows) >= 20
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert set(cells[1:6]) <= {"●", "○", "·"}, row
        proofs = re.findall(r"\]\((tests/[^)]+)\)", cells[6])
        assert proofs, row
        for proof in proofs:
            tested = [
                path.read_text()
                for path in [root / proof, *(root / proof).glob("test_*.py")]
                if path.is_file()
            ]
            assert any("def test_" in text for text in tested), proof


def test_what_it_is_takes_three_sentences(readme):
    text = readme.read_text().partition("# torchport\n")[2].partition("\n![")[0]
    assert len(re.findall(r"[.!?](?=\s+[A-Z]|\s*$)", text)) == 3

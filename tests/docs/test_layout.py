"""docs/layout.md describes every stage that there is, in the order that the import contract holds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.markdown import DOCUMENTS, links, sections


def stages_of(root: Path) -> set[str]:
    """Return the stages in src/torchport: its folders, and its modules with something in them."""
    package = root / "src" / "torchport"
    folders = {path.name + "/" for path in package.iterdir() if (path / "__init__.py").is_file()}
    modules = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    return folders | (modules - {"version.py"})


def described_in(root: Path) -> list[str]:
    """Return the stages that docs/layout.md has a section for, in its order."""
    return [name for name in sections(root / "docs" / "layout.md") if name.endswith(("/", ".py"))]


def layers_of(root: Path) -> list[str]:
    """Return the stages of the import contract, the first in the flow of data first."""
    text = (root / "pyproject.toml").read_text()
    [layers] = re.findall(r"^layers = \[\n(.*?)^\]", text, re.S | re.M)
    return re.findall(r'"(\w+)"', layers)[::-1]


def names(stages: list[str]) -> list[str]:
    return [stage.removesuffix("/").removesuffix(".py") for stage in stages]


@pytest.fixture
def stages(root) -> set[str]:
    return stages_of(root)


@pytest.fixture
def layout(root) -> dict[str, str]:
    return sections(root / "docs" / "layout.md")


def test_every_stage_is_described_and_no_other(root):
    assert set(described_in(root)) == stages_of(root)


def test_the_order_is_that_of_the_import_contract(root):
    assert names(described_in(root)) == layers_of(root)


def broken_imports(root: Path) -> str:
    """Return what the import contracts say of a checkout; empty if they are kept."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout if done.returncode else ""


def test_a_new_stage_is_noticed_until_contract_and_layout_have_it(root, tmp_path):
    shutil.copytree(root / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(root / "docs", tmp_path / "docs")
    contract = (root / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(contract)
    stage = tmp_path / "src" / "torchport" / "toys" / "__init__.py"
    stage.parent.mkdir()
    stage.write_text("from torchport.records import BenchRecord as BenchRecord\n")
    assert "torchport.toys" in broken_imports(tmp_path)
    assert stages_of(tmp_path) - set(described_in(tmp_path)) == {"toys/"}

    (tmp_path / "pyproject.toml").write_text(contract.replace('  "zoo",\n', '  "toys",\n  "zoo",\n'))
    layout = tmp_path / "docs" / "layout.md"
    layout.write_text(
        layout.read_text().replace("## capture/", "## toys/\n\n- in: a\n- out: b\n\n## capture/")
    )
    assert broken_imports(tmp_path) == ""
    assert set(described_in(tmp_path)) == stages_of(tmp_path)
    assert names(described_in(tmp_path)) == layers_of(tmp_path)

    stage.write_text("from torchport.cli import main as main\n")
    assert "torchport.toys is not allowed to import torchport.cli" in broken_imports(tmp_path)


def test_each_stage_says_what_comes_in_and_what_goes_out(layout, stages):
    for stage in stages:
        lines = layout[stage].splitlines()
        assert any(line.startswith("- in: ") for line in lines), stage
        assert any(line.startswith("- out: ") for line in lines), stage


def test_files_that_are_named_exist(layout, stages, root):
    for stage in stages:
        folder = root / "src" / "torchport" / stage
        for word in layout[stage].replace(",", " ").replace(";", " ").replace(":", " ").split():
            name = word.strip("`().")
            if name.endswith(".py") and word.count("`") == 2 and folder.is_dir():
                assert list(folder.rglob(name)), f"{stage}{name}"


def test_every_document_is_linked_and_links_lead_somewhere(root):
    reached = set()
    for document in DOCUMENTS:
        for link in links(document):
            target = (document.parent / link).resolve()
            assert target.exists(), f"{document.name}: {link}"
            reached.add(target)
            if target.is_dir():
                reached.update(target.glob("*.md"))
    assert {path.resolve() for path in (root / "docs").rglob("*.md")} <= reached


def test_files_that_contributing_names_exist(root):
    named = re.findall(r"`((?:src|tests|docs)/[\w./]+)`", (root / "CONTRIBUTING.md").read_text())
    assert len(named) > 15
    for path in named:
        pattern = path.replace("NAME", "*").replace("FAMILY", "*")
        assert list(root.glob(pattern)), path

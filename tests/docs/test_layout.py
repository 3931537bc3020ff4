"""docs/layout.md describes every stage that there is, in the order that the import contract holds."""

from pathlib import Path

import pytest

from docs.markdown import blocks, links, sections


@pytest.fixture
def stages(root) -> set[str]:
    """The stages in src/torchport: its folders, and its modules with something in them."""
    package = root / "src" / "torchport"
    folders = {path.name + "/" for path in package.iterdir() if (path / "__init__.py").is_file()}
    modules = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    return folders | (modules - {"version.py"})


@pytest.fixture
def layout(root) -> dict[str, str]:
    return sections(root / "docs" / "layout.md")


def test_every_stage_is_described_and_no_other(layout, stages):
    described = {heading for heading in layout if heading.endswith(("/", ".py"))}
    assert described == stages


def test_the_order_is_that_of_the_import_contract(layout, root):
    tomllib = pytest.importorskip("tomllib")  # Python 3.10 has none
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    [contract] = [
        entry for entry in settings["tool"]["importlinter"]["contracts"] if entry["type"] == "layers"
    ]
    described = [
        heading.removesuffix("/").removesuffix(".py") for heading in layout if heading.endswith(("/", ".py"))
    ]
    assert described == contract["layers"][::-1]


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
    documents = [root / "README.md", *(root / "docs").rglob("*.md")]
    reached = set()
    for document in documents:
        for link in links(document):
            target = (document.parent / link).resolve()
            assert target.exists(), f"{document.name}: {link}"
            reached.add(target)
            if target.is_dir():
                reached.update(target.glob("*.md"))
    assert {path.resolve() for path in (root / "docs").rglob("*.md")} <= reached


def test_python_in_the_documents_is_python(root):
    for document in (root / "docs").rglob("*.md"):
        for block in blocks(document):
            if block.kind == "python":
                compile(block.text, str(Path(document.name)), "exec")

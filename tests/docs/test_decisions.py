"""The notes in docs/decisions are numbered without gaps, and each has its three parts on about a page."""

import re

from docs.markdown import sections


def test_notes_are_numbered_and_have_their_parts(root):
    notes = sorted((root / "docs" / "decisions").glob("*.md"))
    assert [int(path.name[:4]) for path in notes] == list(range(1, len(notes) + 1))
    for path in notes:
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name)
        assert path.read_text().startswith(f"# {int(path.name[:4])}. ")
        assert list(sections(path)) == ["Context", "Decision", "Cost"]
        assert len(path.read_text().splitlines()) <= 70, f"{path.name} is longer than a page"


def test_notes_that_the_code_refers_to_exist(root):
    for path in (root / "src").rglob("*.py"):
        for name in re.findall(r"docs/decisions/([\w.-]+\.md)", path.read_text()):
            assert (root / "docs" / "decisions" / name).is_file(), f"{path.name}: {name}"

"""docs/results/ttnn.md says what its records say, and shows every row of the table that it answers."""

import sys

import pytest

from docs.markdown import ROOT


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "ttnn_table"))
    import page

    yield page
    for name in ("page", "models", "small_nets"):
        sys.modules.pop(name, None)


def test_the_page_is_what_the_records_give(page):
    assert page.PAGE.read_text(encoding="utf-8") == page.render(page.read_records())


def test_every_row_is_shown(page):
    text = page.PAGE.read_text(encoding="utf-8")
    rows = page.upstream()
    assert len(rows) == 145
    assert [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()[-145:]] == [
        row["name"] for row in rows
    ]


def test_a_record_changes_the_page(page):
    records = page.read_records()
    name = next(iter(records))
    del records[name]
    assert page.render(records) != page.PAGE.read_text(encoding="utf-8")

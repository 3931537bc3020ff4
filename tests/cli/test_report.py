"""`torchport report`."""

import csv

import pytest

from torchport.records import BenchRecord, write_record
from torchport.report import Report


@pytest.fixture
def records(tmp_path):
    folder = tmp_path / "records"
    row = BenchRecord("torchvision:resnet18", "host", "ok", original_time=0.03, compiled_time=0.01, pcc=1.0)
    write_record(row, folder / "bench" / "row.json")
    return folder


def test_the_table_is_markdown_that_is_not_wrapped(command, records):
    ran = command("report", records, width=40)
    assert (ran.code, ran.err) == (0, "")
    head, rule, row = ran.out.splitlines()
    assert head.startswith("| Model")
    assert set(rule) == set("|-: ")
    assert "3.00x" in row


def test_files_are_written_too(command, records, tmp_path):
    page, sheet = tmp_path / "new" / "index.html", tmp_path / "results.csv"
    ran = command("report", records, "--html", page, "--csv", sheet)
    assert ran.code == 0
    assert ran.out.startswith("| Model")
    assert f"wrote {page}" in ran.err
    assert "torchvision:" in page.read_text(encoding="utf-8")
    with sheet.open() as file:
        assert [row["model"] for row in csv.DictReader(file)] == ["torchvision:resnet18"]


def test_json_is_the_report(command, records):
    ran = command("report", records, "--json")
    assert [row.model for row in Report.from_json(ran.json).benches] == ["torchvision:resnet18"]


def test_a_bad_file_is_named_and_a_finding(command, records):
    (records / "bench" / "cut.json").write_text('{"sch')
    ran = command("report", records)
    assert ran.code == 1
    assert "resnet18" in ran.out
    assert ran.err.startswith(f"{records / 'bench' / 'cut.json'}: is not whole JSON")


def test_an_empty_directory_fails(command, tmp_path):
    ran = command("report", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "holds no bench records" in ran.err


def test_a_file_that_cannot_be_written_fails(command, records, tmp_path):
    (tmp_path / "file").write_text("")
    ran = command("report", records, "--html", tmp_path / "file" / "index.html")
    assert ran.code == 2
    assert "cannot be written" in ran.err

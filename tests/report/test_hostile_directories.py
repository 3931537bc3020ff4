"""An untrusted directory: its content is only data, and nothing outside is read, written or removed."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from rich.console import Console

from torchport.cli.main import run
from torchport.cli.output import Output
from torchport.errors import RecordError, ReportError
from torchport.records import RAW_COLUMNS, RAW_FORMAT, BenchRecord, read_csv_text, write_record
from torchport.report import (
    Limits,
    query_survey,
    read_report,
    read_survey,
    render_csv,
    render_html,
    render_markdown,
    write_survey_report,
)
from torchport.report.survey import reading
from torchport.report.survey.csv_files import FOLDERS, count_file

from .pages import data_of
from .survey.surveys_at_hand import convolution, relu, write_model, write_raw, write_row


@pytest.fixture
def outside(tmp_path):
    """A folder outside the directory, with files that look like a report's."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in ("aten.relu.default.csv", "mine.csv", "mine.png", "secret.json", "secret.parquet"):
        (folder / name).write_text("mine")
    return folder


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def stat(tmp_path):
    directory = tmp_path / "stat"
    write_model(directory, "a", convolution(), relu())
    return directory


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_leads_out_is_neither_emptied_nor_filled(stat, outside, name):
    (stat / name).symlink_to(outside)
    before = content(outside)
    with pytest.raises(RecordError, match=f"{name}: is a symbolic link, which is not followed"):
        write_survey_report(read_survey(stat), stat)
    assert content(outside) == before
    assert not (stat / count_file("fw")).exists()


def test_a_file_that_leads_out_is_replaced_itself(stat, outside):
    (stat / count_file("fw")).symlink_to(outside / "mine.csv")
    (stat / count_file("bw")).symlink_to(outside / "mine.png")
    before = content(outside)
    write_survey_report(read_survey(stat), stat, plots=False)
    assert content(outside) == before
    assert (stat / count_file("fw")).read_text().startswith("op,count")
    assert not (stat / count_file("bw")).is_symlink()


@pytest.mark.parametrize("name", ["raw", "rows"])
def test_a_survey_behind_a_link_is_not_read(tmp_path, name):
    write_model(tmp_path / "theirs", "secret", relu())
    directory = tmp_path / "stat"
    write_model(directory, "a", relu())
    for path in (directory / name).iterdir():
        path.unlink()
    (directory / name).rmdir()
    (directory / name).symlink_to(tmp_path / "theirs" / name)
    report = read_report(directory)
    assert str(directory / name) in [problem.path for problem in report.every_problem]
    assert [model.model for model in report.survey.models] == ["a"]


def test_files_behind_links_are_named_and_not_read(stat, tmp_path):
    raw = write_raw(tmp_path / "theirs", "secret", relu())
    (stat / "raw" / "link.parquet").symlink_to(raw)
    write_record(BenchRecord("secret", "host", "ok"), tmp_path / "theirs" / "bench.json")
    (stat / "link.json").symlink_to(tmp_path / "theirs" / "bench.json")
    (stat / "folder").symlink_to(tmp_path / "theirs")
    report = read_report(stat)
    assert report.benches == ()
    named = {Path(problem.path).name for problem in report.every_problem}
    assert named == {"link.parquet", "link.json", "folder"}
    assert all("is a symbolic link" in problem.detail for problem in report.every_problem)


def test_sql_does_not_follow_a_link_either(stat, tmp_path):
    (tmp_path / "secret.csv").write_text("secret")
    (stat / "raw" / "link.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(ReportError, match="Permission Error"):
        query_survey(stat, f"FROM read_csv('{stat}/raw/link.csv')")


def test_a_page_is_not_written_through_a_link(stat, outside, command_of):
    (stat / "pages").symlink_to(outside)
    before = content(outside)
    for option in ("--html", "--csv"):
        code, err = command_of("report", stat, option, stat / "pages" / "mine.csv")
        assert code == 2
        assert "is a symbolic link" in err
    assert content(outside) == before


@pytest.fixture
def command_of():
    def call(*words):
        err = io.StringIO()
        output = Output(Console(file=io.StringIO()), Console(file=err, width=500))
        code = run([str(word) for word in words], output)
        return code, err.getvalue()

    return call


@pytest.mark.parametrize(
    "place", ["raw/x.parquet", "rows/x.json", "bench/x.json", "x.json", "raw", "fw_node_count.csv"]
)
def test_a_fifo_does_not_hang_a_report(stat, place):
    if place == "raw":
        for path in (stat / "raw").iterdir():
            path.unlink()
        (stat / "raw").rmdir()
    (stat / place).parent.mkdir(exist_ok=True)
    os.mkfifo(stat / place)
    program = "from torchport.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program, "report", stat],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in ran.stderr
    if place != "fw_node_count.csv":  # this one is replaced
        assert "is a FIFO" in ran.stderr


@pytest.mark.parametrize("place", ["rows/x.json", "bench/x.json"])
@pytest.mark.parametrize("text", ['{"schema": ' + "[" * 200_000, "[" * 900 + "]" * 900])
def test_deep_json_is_one_problem(stat, place, text):
    (stat / place).parent.mkdir(exist_ok=True)
    (stat / place).write_text(text)
    [problem] = read_report(stat).every_problem
    assert problem.path == str(stat / place)
    assert "levels" in problem.detail


def test_a_record_of_another_size_than_records_have_is_one_problem(stat):
    with (stat / "rows" / "x.json").open("wb") as file:
        file.truncate(1 << 40)
    [problem] = read_report(stat).every_problem
    assert "bytes exceed the limit" in problem.detail


def test_halves_of_pairs_in_records_reach_every_format(tmp_path):
    directory = tmp_path / "stat"
    write_model(directory, "a", relu())
    row = json.loads(next((directory / "rows").iterdir()).read_text())
    row |= {"model": "b\ud800", "status": "raised", "error": "no \udc80", "raw": ""}
    (directory / "rows" / "b.json").write_text(json.dumps(row))
    bench = BenchRecord("c", "host", "failed", error="x").to_json() | {"error": "y \udc80"}
    (directory / "c.json").write_text(json.dumps(bench))
    report = read_report(directory)
    page = render_html(report)
    for text in (render_markdown(report), json.dumps(data_of(page), ensure_ascii=False), render_csv(report)):
        assert "y �" in text
        text.encode()
    page.encode()
    assert query_survey(directory, "SELECT error FROM models WHERE status = 'raised'").rows == (("no �",),)


NAMES = [
    "<script>alert(1)</script>", "javascript:alert(1)", '"><img src=x onerror=alert(1)>', "' onclick='x",
    "</style><script>", "[x](javascript:alert(1))", "--></details>", "{{7*7}}", "=cmd|' /C calc'!A0",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text_in_every_format(tmp_path, name):
    write_record(
        BenchRecord(name, name, "failed", error=name, versions={name: name}, machine={name: name}),
        tmp_path / "a.json",
    )
    raw = write_raw(tmp_path, name, relu(), convolution(module_path=name))
    write_row(tmp_path, name, raw, forward_ops=2)
    write_row(tmp_path, name + "!", None, status="raised", error=name)
    report = read_report(tmp_path)
    page = render_html(report)
    markup = re.sub(r"<script.*?</script>|<style>.*?</style>", "", page, flags=re.DOTALL)
    assert name not in markup  # it is only in the page's data
    assert data_of(page)["rows"][0]["model"] == name
    assert page.count("<script>") == 1
    markdown = render_markdown(report)
    assert "](" not in markdown
    assert not [line for line in markdown.splitlines() if "<" in line.replace("\\<", "")]
    assert [row[0] for row in read_csv_text(render_csv(report))] == ["model", name]


@pytest.mark.parametrize("name", ["a|b", "a\\|b", "a\nb", "a\r\nb", "x" * 100_000, "|" * 5000])
def test_a_name_stays_in_its_cell(tmp_path, name):
    write_record(BenchRecord(name, "host", "ok"), tmp_path / "a.json")
    write_record(BenchRecord("other", "host", "ok"), tmp_path / "b.json")
    lines = render_markdown(read_report(tmp_path)).splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) < 20_000
    bars = [line.replace("\\|", "").count("|") for line in lines]
    assert len(set(bars)) == 1


ENDLESS = "SELECT count(*) FROM range(10000000000) a, range(10000000000) b WHERE hash(a.range + b.range) = 7"


def test_endless_sql_is_interrupted(stat):
    with pytest.raises(ReportError, match=r"takes more than 0\.5 seconds: .*--timeout"):
        query_survey(stat, ENDLESS, Limits(seconds=0.5))
    recursive = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n FROM t) SELECT count(*) FROM t"
    with pytest.raises(ReportError, match=r"takes more than 0\.5 seconds|the SQL fails"):
        query_survey(stat, recursive, Limits(seconds=0.5))


def test_the_timeout_is_an_option(stat, command_of):
    code, err = command_of("report", stat, "--sql", ENDLESS, "--timeout", 0.5)
    assert code == 2
    assert err.startswith("reading the survey: takes more than 0.5 seconds: ")
    assert err.count("\n") == 1


def test_an_interrupted_question_blames_no_file(stat):
    with pytest.raises(ReportError, match="takes more than"):
        read_survey(stat, Limits(seconds=1e-6))


@pytest.mark.parametrize(
    "sql",
    [
        "FROM read_csv('/etc/passwd')", "FROM read_text('/proc/self/environ')", "FROM glob('/etc/*')",
        "FROM read_parquet('http://127.0.0.1:1/x.parquet')", "FROM '/etc/passwd'",
        "FROM read_blob('/etc/hosts')", "FROM sniff_csv('/etc/passwd')", "LOAD httpfs",
        "FROM parquet_metadata('/etc/passwd')", "FROM read_duckdb('/etc/passwd')", "RESET memory_limit",
        "FROM query('COPY (SELECT 1) TO ''/tmp/x.csv''')", "SET enable_external_access = true",
        "PRAGMA enable_external_access = true", "SET lock_configuration = false",
        "CALL load_aws_credentials()", "FROM query_table('/etc/passwd')", "SELECT getenv('HOME')",
        "FROM duckdb_secrets()",
    ],
)  # fmt: skip
def test_nothing_else_is_within_reach(stat, sql):
    with pytest.raises(ReportError, match=r"the SQL (fails|is not a single query)"):
        query_survey(stat, sql)


def test_temporary_files_are_limited(stat):
    sql = "SELECT current_setting('max_temp_directory_size')"
    assert query_survey(stat, sql, Limits(disk="1GB")).rows == (("953.6 MiB",),)


def test_a_raw_file_of_nulls_costs_itself(stat):
    path = stat / "raw" / "nulls.parquet"
    for column in ("op", "model", "direction", "arguments", "graph"):
        values = ", ".join(
            f"{'NULL' if name == column else _usual(name)}::{kind} AS {name}"
            for name, kind in RAW_COLUMNS.items()
        )
        with duckdb.connect() as connection:
            connection.execute(
                f"COPY (SELECT {values}) TO '{path}' (FORMAT parquet, KV_METADATA {{format: '{RAW_FORMAT}'}})"
            )
        write_row(stat, "nulls", path, forward_ops=1)
        report = read_report(stat)
        render_html(report), render_markdown(report), render_csv(report)
        assert "aten.relu.default" in [op.op for op in report.survey.ops]
        if column in ("op", "model", "direction"):
            assert str(path) in [problem.path for problem in report.every_problem]


def _usual(name):
    return {"model": "'nulls'", "direction": "'fw'", "op": "'x'"}.get(name, "NULL")


def test_names_as_long_as_a_file_cost_their_file(stat):
    raw = write_raw(stat, "long", relu(), convolution(), name="long.parquet")
    write_row(stat, "long", raw, forward_ops=2)
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT * REPLACE (repeat('x', 2000000) AS op) FROM '{raw}') TO '{raw}' "
            "(FORMAT parquet, KV_METADATA {format: '" + RAW_FORMAT + "'})"
        )
    [problem] = read_survey(stat).problems
    assert "more than 1000 characters" in problem.detail


def test_more_ops_than_there_are_is_refused(stat, monkeypatch):
    monkeypatch.setattr(reading, "_MOST_OPS", 1)
    with pytest.raises(ReportError, match="holds more than 1 different ops"):
        read_survey(stat)


def test_rows_beyond_counting_take_no_longer_than_allowed(stat):
    """A small file may claim, and even hold, billions of rows."""
    raw = stat / "raw" / "huge.parquet"
    [one] = (stat / "raw").iterdir()
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT a.* FROM (SELECT * FROM '{one}' LIMIT 1) a, range(600000)) TO '{raw}' "
            f"(FORMAT parquet, KV_METADATA {{format: '{RAW_FORMAT}'}})"
        )
    write_row(stat, "a", raw, forward_ops=600_000)
    with pytest.raises(ReportError, match="takes more than"):
        read_survey(stat, Limits(seconds=0.02))

"""`torchport report`."""

import csv
import sys
from subprocess import run

import duckdb
import pytest

from torchport.records import RAW_COLUMNS, RAW_FORMAT, BenchRecord, SurveyRow, write_record
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
    assert "torchport results" in page.read_text(encoding="utf-8")
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
    assert ran.err.startswith(f"{records / 'bench' / 'cut.json'}: is not valid JSON")


def test_an_empty_directory_fails(command, tmp_path):
    ran = command("report", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "holds no bench records" in ran.err


def test_a_file_that_cannot_be_written_fails(command, records, tmp_path):
    (tmp_path / "file").write_text("")
    ran = command("report", records, "--html", tmp_path / "file" / "index.html")
    assert ran.code == 2
    assert "cannot be written" in ran.err


@pytest.fixture
def stat(tmp_path):
    """A survey of one ok model with three ops, and one failed model."""
    folder = tmp_path / "stat"
    (folder / "raw").mkdir(parents=True)
    values = {
        "model": "'m'", "direction": "'fw'", "graph": "0", "arguments": "[]", "inputs": "[]", "outputs": "[]",
        "op": "CASE WHEN i < 2 THEN 'aten.relu.default' ELSE 'aten.mm.default' END",
        "input_bytes": "8", "output_bytes": "4",
    }  # fmt: skip
    columns = ", ".join(
        f"({values.get(name, 'NULL')})::{kind} AS {name}" for name, kind in RAW_COLUMNS.items()
    )
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT {columns} FROM range(3) t(i)) TO '{folder}/raw/m.parquet' "
            f"(FORMAT parquet, KV_METADATA {{format: '{RAW_FORMAT}'}})"
        )
    write_record(SurveyRow("m", "ok", forward_ops=3, graphs=1, raw="m.parquet"), folder / "rows" / "m.json")
    write_record(SurveyRow("n", "timeout", "ran past 5 s"), folder / "rows" / "n.json")
    return folder


def test_a_survey_is_summarised_and_its_files_are_written(command, stat):
    ran = command("report", stat)
    assert ran.code == 0
    assert ran.out.startswith("1 of 2 models ok, 3 ops forward (2 unique)\n\n| Op")
    assert "- ❌ n: timeout: ran past 5 s" in ran.out
    assert (
        ran.err == f"wrote 13 files to {stat}\n"
    )  # one count file; for two ops, two tables and four plots; no arguments
    assert (stat / "fw_node_count.csv").read_text() == "op,count\naten.relu.default,2\naten.mm.default,1\n"


def test_plots_can_be_left_out(command, stat):
    assert command("report", stat, "--no-plots").err == f"wrote 5 files to {stat}\n"
    assert not list(stat.rglob("*.png"))


def test_a_surveys_json_and_html(command, stat, tmp_path):
    page = tmp_path / "index.html"
    ran = command("report", stat, "--json", "--html", page, "--no-plots")
    survey = Report.from_json(ran.json).survey
    assert [(op.op, op.count) for op in survey.ops] == [("aten.relu.default", 2), ("aten.mm.default", 1)]
    assert page.exists()


def test_a_cut_raw_file_is_named_and_a_finding(command, stat):
    (stat / "raw" / "cut.parquet").write_bytes(b"PAR1 and no more")
    write_record(SurveyRow("cut", "ok", raw="cut.parquet"), stat / "rows" / "cut.json")
    ran = command("report", stat, "--no-plots")
    assert ran.code == 1
    assert "3 ops forward" in ran.out
    assert f"{stat / 'raw' / 'cut.parquet'}: is cut off: delete it" in ran.err


def test_an_sql_query(command, stat):
    sql = "SELECT op, count(*) AS n FROM ops GROUP BY op ORDER BY n DESC"
    ran = command("report", stat, "--sql", sql)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[2] == "| aten.relu.default |   2 |"
    assert command("report", stat, "--sql", sql, "--json").json == [
        {"op": "aten.relu.default", "n": 2}, {"op": "aten.mm.default", "n": 1},
    ]  # fmt: skip
    assert sorted(path.name for path in stat.iterdir()) == ["raw", "rows"]


def test_wrong_sql_fails_with_one_line(command, stat):
    ran = command("report", stat, "--sql", "SELECT opp FROM ops")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert 'column "opp" not found' in ran.err


def test_sql_cannot_be_combined_with_output_files(command, stat, tmp_path):
    ran = command("report", stat, "--sql", "FROM ops", "--html", tmp_path / "x.html")
    assert ran.code == 2
    assert "--sql writes no file" in ran.err


def test_a_survey_without_bench_records_has_no_results_table(command, stat, tmp_path):
    ran = command("report", stat, "--csv", tmp_path / "x.csv")
    assert ran.code == 2
    assert "holds no bench records, so there is no table for --csv" in ran.err


def test_a_survey_with_no_ok_model_fails_with_one_line(command, tmp_path):
    write_record(SurveyRow("n", "timeout", "ran past 5 s"), tmp_path / "rows" / "n.json")
    ran = command("report", tmp_path)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "none of the survey's 1 models is ok; n: timeout: ran past 5 s" in ran.err


def test_a_survey_is_reported_without_torch(stat):
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path; from torchport.report import read_survey\n"
        f"print(len(read_survey(Path({str(stat)!r})).ops))"
    )
    done = run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")

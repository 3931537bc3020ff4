"""Reading a directory's records, valid and invalid."""

import subprocess
import sys

import pytest

from torchport.errors import ReportError
from torchport.report import Report, read_report

from .records_at_hand import bench, coverage, stayed, write


def test_rows_come_sorted_by_model_and_target(tmp_path):
    rows = [bench("b", "host"), bench("a", "openvino"), bench("a", "host")]
    report = read_report(write(tmp_path, *rows))
    assert report.benches == (rows[2], rows[1], rows[0])


def test_a_bad_file_costs_only_itself(tmp_path):
    write(tmp_path, bench())
    (tmp_path / "bench" / "cut.json").write_text('{"schema": "torchport.bench/1", "mod')
    (tmp_path / "bench" / "old.json").write_text('{"schema": "torchport.bench/0", "model": "m"}')
    (tmp_path / "bench" / "odd.json").write_text('{"schema": "torchport.bench/1", "model": 3}')
    report = read_report(tmp_path)
    assert report.benches == (bench(),)
    named = {problem.path.rsplit("/")[-1]: problem.detail for problem in report.problems}
    assert sorted(named) == ["cut.json", "odd.json", "old.json"]
    assert "is not valid JSON" in named["cut.json"]
    assert "expected str, got 3" in named["odd.json"]
    assert "the schema is 'torchport.bench/0'" in named["old.json"]


def test_other_json_is_passed_over(tmp_path):
    write(tmp_path, bench())
    (tmp_path / "package.json").write_text('{"name": "something else"}')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "later.json").write_text('{"schema": "torchport.survey/1"}')
    report = read_report(tmp_path)
    assert (len(report.benches), report.problems) == (1, ())


def test_unfinished_writes_are_passed_over(tmp_path):
    write(tmp_path, bench())
    (tmp_path / "bench" / ".row.json.123.tmp").write_text('{"sch')
    assert read_report(tmp_path).problems == ()


@pytest.mark.parametrize(("name", "message"), [("none", "no such directory"), ("empty", "no bench records")])
def test_nothing_to_show_is_refused(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReportError, match=message) as caught:
        read_report(tmp_path / name)
    assert name in caught.value.where
    assert "torchport bench" in caught.value.remedy


def test_a_report_survives_json(tmp_path):
    write(tmp_path, bench(), coverage("torchvision:resnet18", stayed()))
    (tmp_path / "bench" / "cut.json").write_text("{")
    report = read_report(tmp_path)
    assert Report.from_json(report.to_json()) == report


def test_no_torch_is_imported():
    code = "import sys, torchport.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

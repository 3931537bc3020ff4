"""A survey records every model that works; one that does not affects only its own row, which says why."""

import json
import subprocess
from pathlib import Path

import duckdb
import pytest

from forked_python import ForkedPopen
from torchport.errors import SurveyError, TargetError
from torchport.records import BenchRecord, SurveyRow, file_name, read_record
from torchport.survey import SurveyProgress, run_survey
from torchport.survey.directory import SurveyDirectory
from torchport.survey.engines import LocalEngine
from torchport.survey.work_item import ItemOutcome, SurveySettings, WorkItem

FILE = Path(__file__).parent / "faulty.py"


def named(*functions):
    return [f"{FILE}::{function}" for function in functions]


class Told(SurveyProgress):
    def __init__(self):
        self.before, self.began, self.done = [], [], []

    def planned(self, models, done_before):
        self.before = [row.model.rpartition("::")[2] for row in done_before]

    def started(self, model):
        self.began.append(model.rpartition("::")[2])

    def finished(self, row):
        self.done.append(row.model.rpartition("::")[2])


FAULTY = {
    "raises": ("raised", "three is odd"),
    "hangs": ("timeout", "it ran for more than 8 s"),
    "eats_memory": ("memory", "above its limit of 1.5 GB"),
    "segfaults": ("crashed", "its process was killed by SIGSEGV"),
    "kills_itself": ("crashed", "its process was killed by SIGKILL"),
    "kills_its_worker": ("crashed", "its worker process was killed by SIGKILL"),
    "leaves": ("raised", "SystemExit"),
}
WORKING = ("works", "branches", "works_too")


@pytest.fixture(scope="module")
def surveyed(tmp_path_factory):
    """One survey of models that work, with failing ones in between."""
    output = tmp_path_factory.mktemp("survey")
    names = ("works", *FAULTY, "branches", "works_too")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", ForkedPopen)
        rows = run_survey(
            named(*names),
            output=output,
            settings=SurveySettings(backward=True),
            timeout=8,
            memory=1_500_000_000,
        )
    return output, dict(zip(names, rows, strict=True))


def counted(output):
    found = duckdb.sql(f"SELECT model, direction, count(*) FROM '{output}/raw/*.parquet' GROUP BY ALL")
    return {(model.rpartition("::")[2], direction): number for model, direction, number in found.fetchall()}


@pytest.mark.parametrize("name", FAULTY)
def test_a_model_that_fails_affects_only_its_own_row_which_says_why(surveyed, name):
    status, error = FAULTY[name]
    row = surveyed[1][name]
    assert row.status == status
    assert error in row.error
    assert row.raw == ""


def test_those_that_work_are_recorded_and_counted_once(surveyed):
    output, rows = surveyed
    assert {name: row.status for name, row in rows.items() if row.status == "ok"} == dict.fromkeys(
        WORKING, "ok"
    )
    # t, addmm, relu and the detached tensor saved for backward; and their gradients.
    assert (rows["works"].forward_ops, rows["works"].graphs) == (4, 2)
    assert counted(output) == {
        (name, direction): ops
        for name in WORKING
        for direction, ops in (("fw", rows[name].forward_ops), ("bw", rows[name].backward_ops))
    }
    assert sorted(path.name for path in (output / "raw").iterdir()) == sorted(
        rows[name].raw for name in WORKING
    )
    assert rows["works"].seconds > 0
    assert rows["works"].peak_bytes > 50_000_000


def test_a_path_that_depends_on_values_is_recorded_on_real_ones_and_says_so(surveyed):
    row = surveyed[1]["branches"]
    assert row.graphs == 4  # two forward, two backward
    assert "ran on real values" in row.note
    assert surveyed[1]["works"].note == ""


def test_a_survey_that_is_run_again_repeats_nothing(surveyed):
    output, rows = surveyed
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.*")}
    told = Told()
    again = run_survey(named(*rows), output=output, settings=SurveySettings(backward=True), progress=told)
    assert again == tuple(rows.values())
    assert sorted(told.before) == sorted(rows)
    assert (told.began, told.done) == ([], [])
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.*")} == before


@pytest.mark.usefixtures("forked_python")
def test_retry_repeats_failures_and_a_new_failure_removes_the_old_records(tmp_path):
    model, output, told = tmp_path / "model.py", tmp_path / "stat", Told()
    model.write_text(FILE.read_text())
    names = [f"{model}::works", f"{model}::raises"]
    run_survey(names, output=output, engine=LocalEngine(1), progress=told)
    run_survey(names, output=output, engine=LocalEngine(1), retry=True, progress=told)
    assert told.began == ["works", "raises", "raises"]
    assert counted(output) == {("works", "fw"): 3}
    model.write_text("def works():\n    raise ValueError('no more')\n")
    [row] = run_survey(names[:1], output=output, progress=told)  # the file has changed, so the row is stale
    assert (told.began[-1], row.status) == ("works", "raised")
    assert list((output / "raw").iterdir()) == []


def test_a_row_counts_as_done_only_with_the_same_settings_and_its_records(tmp_path):
    item = WorkItem("torchvision:resnet18", SurveySettings(backward=True))
    raw = Path(file_name(item.model)).with_suffix(".parquet").name
    row = SurveyRow(item.model, "ok", raw=raw).to_json()
    directory = SurveyDirectory(tmp_path)
    kept = directory.keep(ItemOutcome(item, row, {f"raw/{raw}": b"ops"}))
    assert directory.row_of(item) == kept
    for settings in (SurveySettings(), SurveySettings(backward=True, train=True), SurveySettings("host")):
        assert directory.row_of(WorkItem(item.model, settings)) is None
    (tmp_path / "raw" / raw).unlink()
    assert directory.row_of(item) is None
    directory.keep(ItemOutcome(item, row, {f"raw/{raw}": b"ops"}))
    path = tmp_path / "rows" / file_name(item.model)
    path.write_text(path.read_text()[:100])  # as after a crash of the machine
    assert directory.row_of(item) is None


def test_a_second_survey_of_the_same_directory_is_refused(tmp_path):
    with (
        SurveyDirectory(tmp_path).locked(),
        pytest.raises(SurveyError, match="another survey is writing there"),
    ):
        run_survey(named("works"), output=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".survey.lock"]


@pytest.mark.usefixtures("forked_python")
def test_a_profile_can_be_opened_in_a_trace_viewer_and_a_target_gives_a_results_row(tmp_path):
    [row] = run_survey(named("works"), output=tmp_path, settings=SurveySettings(profile=True))
    trace = json.loads((tmp_path / "profile" / file_name(row.model)).read_text())
    assert "aten::addmm" in {event["name"] for event in trace["traceEvents"]}
    ran, failed = run_survey(
        named("works", "raises"), output=tmp_path, settings=SurveySettings("host"), engine=LocalEngine(1)
    )
    assert (ran.status, failed.status) == ("ok", "raised")
    records = [read_record(path, BenchRecord) for path in sorted((tmp_path / "bench").iterdir())]
    assert {(record.model, record.status) for record in records} == {
        (ran.model, "ok"),
        (failed.model, "failed"),
    }
    assert (tmp_path / "raw" / row.raw).exists()


def test_impossible_settings_are_rejected_before_anything_runs(tmp_path):
    for arguments, error, message in (
        ({"models": []}, SurveyError, "no model"),
        ({"settings": SurveySettings("opnvino")}, TargetError, "openvino"),
        ({"settings": SurveySettings("host", backward=True)}, SurveyError, "runs inference"),
        ({"engine": "rya"}, SurveyError, "did you mean 'ray'"),
        ({"settings": SurveySettings(options={"a": "b"})}, SurveyError, "has no options"),
    ):
        given = {"models": named("works"), "output": tmp_path / "stat"} | arguments
        with pytest.raises(error, match=message):
            run_survey(given.pop("models"), **given)
    assert not (tmp_path / "stat").exists()

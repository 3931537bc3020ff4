"""Benchmarking many models on many targets, with one file per row."""

import pytest

from torchport.bringup import BenchSettings, run_benches
from torchport.bringup.benches import Progress
from torchport.errors import SurveyError, TargetError, ZooError
from torchport.records import BenchRecord, Coverage, read_record

from .modules import Raises, linear, model

QUICK = BenchSettings(runs=1, warmup=0)


def load(name):
    if name == "linear":
        return linear()
    if name == "raises":
        return model(Raises())
    if name == "exits":
        raise SystemExit("bye")
    raise ZooError("no such model", where=name)


def bench(tmp_path, *models, targets=("host",), **more):
    return run_benches(models, targets=targets, directory=tmp_path, settings=QUICK, load=load, **more)


def test_each_row_and_its_coverage_are_written_to_files(tmp_path):
    rows = bench(tmp_path, "linear", targets=["host", "openvino"])
    assert [(row.model, row.target, row.status) for row in rows] == [
        ("linear", "host", "ok"),
        ("linear", "openvino", "ok"),
    ]
    files = sorted((tmp_path / "bench").iterdir())
    assert tuple(read_record(path, BenchRecord) for path in files) == rows
    coverages = [read_record(path, Coverage) for path in sorted((tmp_path / "coverage").iterdir())]
    assert [(found.model, found.target) for found in coverages] == [
        ("linear", "host"),
        ("linear", "openvino"),
    ]


def test_a_bad_model_fails_only_its_own_row(tmp_path):
    rows = bench(tmp_path, "absent", "raises", "exits", "linear")
    assert [row.status for row in rows] == ["failed", "failed", "failed", "ok"]
    assert rows[0].error == "absent: no such model"
    assert "no such" in rows[1].error
    assert rows[2].error == "SystemExit: bye"
    assert len(list((tmp_path / "bench").iterdir())) == 4
    assert rows[0].versions["torchport"]


def test_a_row_has_the_requested_name(tmp_path):
    assert [row.model for row in bench(tmp_path, "raises")] == ["raises"]


def _read(path):
    return read_record(path, BenchRecord)


def test_a_failure_removes_the_coverage_of_an_earlier_success(tmp_path):
    bench(tmp_path, "linear")
    assert list((tmp_path / "coverage").iterdir())

    def broken(name):
        raise ZooError("gone", where=name)

    run_benches(["linear"], targets=["host"], directory=tmp_path, load=broken)
    assert not list((tmp_path / "coverage").iterdir())
    assert [_read(path).status for path in (tmp_path / "bench").iterdir()] == ["failed"]


def test_a_name_given_twice_is_measured_once(tmp_path):
    assert len(bench(tmp_path, "linear", "linear", targets=["host", "host"])) == 1


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        (["host", "opnvino"], {}, "did you mean 'openvino'"),
        (["host"], {"host": {"cahce": "no"}}, "did you mean 'cache'"),
    ],
)
def test_an_error_that_would_affect_every_row_is_raised_before_the_first(tmp_path, targets, options, message):
    with pytest.raises(TargetError, match=message):
        bench(tmp_path, "linear", targets=targets, options=options)
    assert not list(tmp_path.iterdir())


def test_options_reach_their_target(tmp_path):
    kept = {"host": {"keep_ops": ("aten.relu",)}}
    row = bench(tmp_path, "linear", options=kept)[0]
    assert (row.status, row.ops_remain) == ("ok", 1)


@pytest.mark.parametrize(("models", "targets"), [([], ["host"]), (["linear"], [])])
def test_no_models_or_targets_is_refused(tmp_path, models, targets):
    with pytest.raises(SurveyError, match="at least one"):
        bench(tmp_path, *models, targets=targets)


def test_progress_is_reported(tmp_path):
    told = []

    class Listening(Progress):
        def loading(self, model):
            told.append(model)

        def started(self, model, target):
            told.append((model, target))

        def finished(self, record):
            told.append(record.status)

    bench(tmp_path, "linear", "absent", progress=Listening())
    assert told == ["linear", ("linear", "host"), "ok", "absent", ("absent", "host"), "failed"]

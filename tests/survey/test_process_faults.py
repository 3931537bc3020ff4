"""A model that harms its process affects only its own row, and leaves nothing behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from report.pages import blocks_of
from torchport.errors import RecordError, TorchportError, one_line, shortened
from torchport.records import SurveyRow, file_name, read_record
from torchport.report import query_survey, read_report, render_html
from torchport.survey import run_survey
from torchport.survey.engines import LocalEngine

FILE = Path(__file__).parent / "faulty.py"


def survey(output, *names, **more):
    models = [f"{FILE}::{name}" for name in names]
    return run_survey(models, output=output, engine=LocalEngine(1), **more)


def stored(output, name):
    return read_record(output / "rows" / file_name(f"{FILE}::{name}"), SurveyRow)


@pytest.mark.usefixtures("forked_python")
def test_errors_of_any_text_are_kept_short_and_read_back(tmp_path):
    names = ["raises_half_a_pair", "raises_megabytes", "raises_unspeakably", "quits", "quits_with_a_code"]
    rows = survey(tmp_path, *names, "works")
    assert [row.status for row in rows] == ["raised"] * 3 + ["crashed"] * 2 + ["ok"]
    assert [stored(tmp_path, name) for name in (*names, "works")] == list(rows)
    half, megabytes, unspeakable, quits, with_code, _ = (row.error for row in rows)
    assert "no such file: \\udc80\\ud800.bin" in half
    assert len(megabytes) < 3000
    assert "here: begin xxx" in megabytes
    assert "xxx end: there" in megabytes
    assert "characters left out" in megabytes
    assert "Unspeakable: its message cannot be read" in unspeakable
    assert quits == "its process exited with code 0 before it returned a result"
    assert with_code == "its process exited with code 7 before it returned a result"
    assert (tmp_path / "rows" / file_name(f"{FILE}::raises_megabytes")).stat().st_size < 10_000
    assert "udc80" in str(blocks_of(render_html(read_report(tmp_path))))
    assert query_survey(tmp_path, "SELECT count(*) FROM models").rows == ((6,),)


@pytest.mark.parametrize(
    ("name", "status", "more"),
    [
        ("leaves_families", "ok", {}),
        pytest.param("leaves_families_and_hangs", "timeout", {"timeout": 5}, marks=pytest.mark.conformance),
        pytest.param("leaves_families_and_crashes", "crashed", {}, marks=pytest.mark.conformance),
        pytest.param("leaves_families_and_kills_its_worker", "crashed", {}, marks=pytest.mark.conformance),
    ],
)
def test_nothing_that_a_model_starts_outlives_it(tmp_path, monkeypatch, request, name, status, more):
    if name != "leaves_families_and_kills_its_worker":  # the others need no worker of their own
        request.getfixturevalue("forked_python")
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv("FAULTY_NOTES", str(notes))
    [row] = survey(tmp_path / "stat", name, **more)
    assert row.status == status, row.error
    started = [int(path.name.split("-")[0]) for path in notes.iterdir()]
    assert len(started) == 3
    patience = time.monotonic() + 10
    while any(map(alive, started)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not [pid for pid in started if alive(pid)]


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.conformance
@pytest.mark.usefixtures("forked_python")
def test_memory_that_processes_share_counts_once(tmp_path):
    """Five processes share 200 MB and torch's own memory, which would otherwise count five times."""
    usual, shared = survey(tmp_path, "works", "shares_memory")
    assert (usual.status, shared.status) == ("ok", "ok"), shared.error
    assert shared.peak_bytes < usual.peak_bytes + 2 * (200 << 20)


@pytest.mark.conformance  # test_survey_faults.py kills a survey, too
def test_a_survey_that_is_killed_leaves_no_folder_and_no_process(tmp_path):
    folders, notes = tmp_path / "temporary", tmp_path / "notes"
    folders.mkdir()
    notes.mkdir()
    model = f"{FILE}::leaves_families_and_hangs"
    code = (
        "from torchport.survey import run_survey; from torchport.survey.engines import LocalEngine\n"
        f"run_survey([{model!r}], output={str(tmp_path / 'stat')!r}, engine=LocalEngine(1))"
    )
    environment = os.environ | {"TMPDIR": str(folders), "FAULTY_NOTES": str(notes)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    patience = time.monotonic() + 100
    while len(list(notes.iterdir())) < 3 and time.monotonic() < patience:
        time.sleep(0.05)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 4
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(family, timeout=30)
    assert left == []
    assert list(folders.glob("torchport-*")) == []


@pytest.mark.parametrize("name", ["raw", "rows", "profile", "bench", "coverage"])
def test_a_survey_does_not_go_on_through_a_link(tmp_path, name):
    (tmp_path / "stat").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "stat" / name).symlink_to(tmp_path / "outside")
    with pytest.raises(RecordError, match="is a symbolic link, which is not followed"):
        survey(tmp_path / "stat", "works")
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.usefixtures("forked_python")
def test_a_row_with_the_name_of_another_file_is_done_again(tmp_path):
    forged = {
        "works": "a" * 5000,
        "works_too": "../raw/other.parquet",
        "also_works": "/etc/hostname",
        "works_as_well": "\0",
    }
    survey(tmp_path, *forged)
    before = {name: stored(tmp_path, name).raw for name in forged}
    assert len(set(before.values())) == len(forged)
    for name, raw in forged.items():
        path = tmp_path / "rows" / file_name(f"{FILE}::{name}")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"raw": raw}))
    survey(tmp_path, *forged)
    assert {name: stored(tmp_path, name).raw for name in forged} == before


@pytest.mark.usefixtures("forked_python")
def test_a_folder_in_place_of_a_row_is_named(tmp_path):
    path = tmp_path / "rows" / file_name(f"{FILE}::works")
    path.mkdir(parents=True)
    with pytest.raises(RecordError, match="cannot be replaced") as caught:
        survey(tmp_path, "works")
    assert caught.value.where == str(path)


def test_a_lock_that_is_a_link_makes_no_file(tmp_path):
    (tmp_path / "stat").mkdir()
    (tmp_path / "stat" / ".survey.lock").symlink_to(tmp_path / "made")
    with pytest.raises(TorchportError, match="cannot be written"):
        survey(tmp_path / "stat", "works")
    assert not (tmp_path / "made").exists()


def test_a_long_text_keeps_head_and_tail():
    assert shortened("a" * 10 + "b" * 90, 20) == "a" * 10 + " … (80 characters left out) … " + "b" * 10
    assert shortened("short") == "short"
    assert len(one_line(TorchportError("x" * 10_000_000))) < 2100
    assert len(one_line(ValueError("x" * 10_000_000))) < 400


def test_an_error_without_words_has_a_name():
    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    assert one_line(Unspeakable()) == "Unspeakable: its message cannot be read: RuntimeError"

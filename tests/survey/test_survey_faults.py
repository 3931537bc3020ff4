"""However a survey ends, its records remain, complete and unique, and the next survey resumes from them."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import psutil
import pytest

from torchport.records import SurveyRow, read_record
from torchport.survey import SurveySettings, run_survey
from torchport.survey.engines import LocalEngine

FILE = Path(__file__).parent / "faulty.py"
NAMES = ("works", "works_too", "also_works", "works_as_well")
SURVEY = """
import resource, sys
from torchport.survey import SurveySettings, run_survey
from torchport.survey.engines import LocalEngine
if __name__ == "__main__":
    output, *models = sys.argv[1:]
    try:
        run_survey(models, output=output, settings=SurveySettings(backward=True), engine=LocalEngine(1))
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "survey.py"
    path.write_text(SURVEY)
    return path


def start(script, output, names=NAMES):
    command = [sys.executable, str(script), str(output), *(f"{FILE}::{name}" for name in names)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def rows_in(output):
    return {path.name: path.stat().st_mtime_ns for path in (output / "rows").glob("*.json")}


def check_whole(output):
    """Check that every file can be read, and that no model is counted twice."""
    rows = [read_record(path, SurveyRow) for path in (output / "rows").glob("*.json")]
    assert {row.status for row in rows} <= {"ok"}
    for row in rows:
        found = duckdb.sql(
            f"SELECT direction, count(*) FROM '{output}/raw/{row.raw}' GROUP BY ALL"
        ).fetchall()
        assert dict(found) == {"fw": row.forward_ops, "bw": row.backward_ops}
    return rows


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.conformance)])
def test_a_survey_that_is_killed_at_any_point_goes_on_and_repeats_nothing(script, tmp_path, kills, request):
    output = tmp_path / "stat"
    dice = random.Random()
    done: dict[str, int] = {}
    for wanted in range(1, kills + 1):
        process = start(script, output)
        while len(rows_in(output)) < wanted and process.poll() is None:
            time.sleep(0.01)
        time.sleep(dice.uniform(0, 0.3))
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
        _, left = psutil.wait_procs(started, timeout=20)
        assert left == []  # its workers have ended too
        check_whole(output)
        assert done.items() <= rows_in(output).items()
        done = rows_in(output)
    request.getfixturevalue("forked_python")  # nothing is killed from here on
    run_survey(
        [f"{FILE}::{name}" for name in NAMES],
        output=output,
        settings=SurveySettings(backward=True),
        engine=LocalEngine(1),
    )
    assert done.items() <= rows_in(output).items()
    assert len(check_whole(output)) == len(NAMES)
    assert [path for path in output.rglob(".*") if path.name != ".survey.lock"] == []


@pytest.mark.conformance  # test_survey_models.py has a model that kills its worker
def test_a_killed_worker_affects_at_most_one_row(script, tmp_path):
    output = tmp_path / "stat"
    process = start(script, output)
    survey = psutil.Process(process.pid)
    while not rows_in(output):
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.1))
    for worker in survey.children():
        worker.send_signal(signal.SIGKILL)
    assert process.communicate(timeout=120)[1] == ""
    rows = [read_record(path, SurveyRow) for path in (output / "rows").glob("*.json")]
    assert len(rows) == len(NAMES)
    assert sum(row.status == "ok" for row in rows) >= len(NAMES) - 1
    assert {row.error for row in rows if row.status != "ok"} <= {"its worker process was killed by SIGKILL"}


@pytest.fixture
def small_disk(tmp_path):
    """A directory, and the command that runs others in a mount namespace where it has only 24 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    shell = f'mount -t tmpfs -o size=24k tmpfs {folder} && exec "$@"'
    for user in (["--user", "--map-root-user"], []):  # the latter if only root may create namespaces
        inside = ["unshare", *user, "--mount", "sh", "-c", shell, "sh"]
        if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode == 0:
            return folder, inside
    pytest.fail("no mount namespace can be had here: neither as a user nor as root")


@pytest.mark.conformance
def test_a_full_disk_is_one_message_and_leaves_nothing_half_written(script, small_disk, tmp_path):
    folder, inside = small_disk
    look = f'"$0" "$@"; code=$?; find {folder} -type f | sort; exit $code'
    models = [f"{FILE}::{name}" for name in (*NAMES, "branches")]
    command = [sys.executable, str(script), str(folder / "stat"), *models]
    ran = subprocess.run(
        [*inside, "sh", "-c", look, *command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert ran.returncode == 1
    [message] = ran.stderr.splitlines()
    assert "No space left on device" in message
    assert message.startswith("RecordError")
    left = [Path(line).relative_to(folder / "stat") for line in ran.stdout.splitlines()]
    raw = [path for path in left if path.parts[0] == "raw"]
    rows = [path for path in left if path.parts[0] == "rows"]
    assert 1 <= len(rows) <= len(raw) < len(models)  # some were recorded before the disk was full
    assert {path.stem for path in rows} <= {path.stem for path in raw}
    assert [path for path in left if path.name.endswith(".tmp")] == []

"""Surveys where forking is not safe, and on systems that are not POSIX, both simulated."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from torchport.errors import SurveyError
from torchport.survey import SurveySettings, run_survey, system, worker
from torchport.survey.directory import SurveyDirectory
from torchport.survey.engines import LocalEngine

FILE = Path(__file__).parent / "faulty.py"
SPAWNING = """
from torchport.survey import worker_process

def refuse():
    raise AssertionError("it forked")

worker_process.forks_safely = lambda: False
worker_process.os.fork = refuse
worker_process.main()
"""


@pytest.mark.usefixtures("forked_python")  # of the worker; it starts its own processes as usual
@pytest.mark.parametrize("also_killed", [False, pytest.param(True, marks=pytest.mark.conformance)])
def test_where_a_fork_is_not_safe_each_item_has_a_new_process(tmp_path, monkeypatch, also_killed):
    (tmp_path / "spawning_worker.py").write_text(SPAWNING)
    _add_to_path(monkeypatch, tmp_path)
    monkeypatch.setattr(worker, "PROGRAM", "spawning_worker")
    names = [f"{FILE}::{name}" for name in ("works", "kills_itself")[: 1 + also_killed]]
    rows = run_survey(names, output=tmp_path / "out", engine=LocalEngine(1), timeout=120)
    assert [(row.status, row.error) for row in rows] == [
        ("ok", ""),
        ("crashed", "its process was killed by SIGKILL"),
    ][: 1 + also_killed]
    assert rows[0].peak_bytes > 2**20


WITH_GPU = """
import os
from torchport.survey import worker_process

os.environ["CUDA_VISIBLE_DEVICES"] = "7"
worker_process.has_gpu = lambda: True
worker_process.main()
"""
MODELS = """
import os, torch

def uses_a_gpu():
    seen = os.environ["CUDA_VISIBLE_DEVICES"]
    if seen != "7":
        raise RuntimeError("No CUDA GPUs are available")
    return torch.nn.ReLU(), (torch.rand(2),)

def raises():
    raise RuntimeError(f"it sees {os.environ['CUDA_VISIBLE_DEVICES']!r}")

def raises_with_a_gpu():
    uses_a_gpu()
    raise RuntimeError("it is too small")
"""


@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize("also_failing", [False, pytest.param(True, marks=pytest.mark.conformance)])
def test_forked_processes_see_no_gpu_and_items_that_need_one_run_again(tmp_path, monkeypatch, also_failing):
    (tmp_path / "gpu_worker.py").write_text(WITH_GPU)
    (tmp_path / "net.py").write_text(MODELS)
    _add_to_path(monkeypatch, tmp_path)
    monkeypatch.setattr(worker, "PROGRAM", "gpu_worker")
    items = ("uses_a_gpu", "raises", "raises_with_a_gpu")[: 2 + also_failing]
    names = [f"{tmp_path / 'net.py'}::{name}" for name in items]
    rows = run_survey(names, output=tmp_path / "out", engine=LocalEngine(1), timeout=120)
    assert [row.status for row in rows] == ["ok", "raised", "raised"][: 2 + also_failing]
    assert rows[0].forward_ops == 1
    assert "it sees ''" in rows[1].error
    if also_failing:
        assert "it is too small" in rows[2].error


WITH_THREADS = """
import os
from torchport.survey import worker_process

parent, capture = os.getpid(), worker_process.capture_graphs

def watched(*args, backward=False):
    assert not (backward and os.getpid() == parent), "the worker ran a backward pass"
    return capture(*args, backward=backward)

worker_process.capture_graphs = watched
worker_process.can_fork_after_backward = lambda: False
worker_process.main()
"""


@pytest.mark.usefixtures("forked_python")
def test_where_forked_processes_cannot_follow_a_backward_pass_a_worker_runs_none(tmp_path, monkeypatch):
    (tmp_path / "threads_worker.py").write_text(WITH_THREADS)
    _add_to_path(monkeypatch, tmp_path)
    monkeypatch.setattr(worker, "PROGRAM", "threads_worker")
    settings = SurveySettings(backward=True)
    [row] = run_survey(
        [f"{FILE}::works"], output=tmp_path / "out", settings=settings, engine=LocalEngine(1), timeout=120
    )
    assert (row.status, row.error) == ("ok", "")
    assert row.backward_ops


def test_whether_a_fork_can_follow_a_backward_pass_is_tried_in_other_processes(monkeypatch):
    ran = []

    def once():
        assert not ran
        ran.append(1)
        return True

    monkeypatch.setattr(system, "_runs_backward", once)
    assert not system.can_fork_after_backward()  # the second process inherits that the first one ran it
    monkeypatch.setattr(system, "_runs_backward", lambda: True)
    assert system.can_fork_after_backward()
    assert ran == []


def _add_to_path(monkeypatch, folder):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


def test_gpus_are_hidden_and_asked_for_in_another_process(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    for found in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=found: asked.append(1) or found)
        assert system.has_gpu() is found
    assert asked == []  # in this process
    monkeypatch.setattr(torch.cuda, "is_available", lambda: 1 / 0)
    assert not system.has_gpu()
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": "3", "A": "b"})
    assert system.hide_gpus() == {"CUDA_VISIBLE_DEVICES": "3", "A": "b"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_forks_are_not_safe_on_macos(monkeypatch):
    assert system.forks_safely() is (sys.platform != "darwin")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not system.forks_safely()


def test_macos_counts_memory_in_bytes(monkeypatch):
    usage = SimpleNamespace(ru_maxrss=4096)
    monkeypatch.setattr(sys, "platform", "linux")
    assert system.peak_memory(usage) == 4096 * 1024
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system.peak_memory(usage) == 4096


PARENT = """
import os, subprocess, sys
child = "import os, sys; from torchport.survey.system import watch_parent; print(os.getpid(), flush=True); "
child += "watch_parent(int(sys.argv[1]))"
subprocess.Popen([sys.executable, "-c", child, str(os.getpid())], start_new_session=True)
sys.stdin.read()
"""


def test_a_process_that_watches_its_parent_ends_with_it():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child = psutil.Process(int(parent.stdout.readline()))
    assert child.is_running()
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it outlives its parent"
        time.sleep(0.05)


@pytest.mark.parametrize("missing", ["fcntl", "wait4", "killpg"])
def test_without_posix_a_survey_is_refused_in_one_line(missing, tmp_path, monkeypatch):
    if missing == "fcntl":
        monkeypatch.setattr(system, "has_locks", lambda: False)
    else:
        monkeypatch.delattr(os, missing)
    for survey in (
        lambda: run_survey([f"{FILE}::works"], output=tmp_path / "out"),
        lambda: SurveyDirectory(tmp_path / "out").locked().__enter__(),
    ):
        with pytest.raises(SurveyError, match="surveys need POSIX") as refusal:
            survey()
        assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out").exists()

"""Engines build in parallel, are timed one by one, and no process is left behind."""

import threading
import time

import pytest

from torchport.compiler import engine_processes
from torchport.compiler.engine_processes import Bounds, Turn, at_a_time, run_trials
from torchport.targets.child_process import ChildEnd, run_child

GB = 10**9


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / name for name in ("a", "b", "c")]
    for folder in made:
        folder.mkdir()
    return made


def test_all_have_built_before_one_is_timed_and_then_each_is_alone(folders, monkeypatch):
    events = []

    def child(module, folder, log, *, timeout, memory, waits, stop):
        if folder.name == "b":
            events.append("b ends")  # it crashes
            return ChildEnd("exited", -11)
        time.sleep(0.2 if folder.name == "a" else 0.4)
        events.append(f"{folder.name} built")
        Turn(folder).wait()
        events.append(f"{folder.name} is timed")
        time.sleep(0.1)
        events.append(f"{folder.name} ends")
        return ChildEnd("exited", 0)

    monkeypatch.setattr(engine_processes, "run_child", child)
    told = []
    ends = dict(run_trials(folders, Bounds(60, GB), told.append))
    assert {index: end.code for index, end in ends.items()} == {0: 0, 1: -11, 2: 0}
    timed = ["a is timed", "a ends", "c is timed", "c ends"]
    assert events == ["b ends", "a built", "c built", *timed]
    assert told == [0, 2]


def test_who_waits_for_its_turn_spends_no_time_and_is_ended_with_its_caller(folders, monkeypatch):
    seen = {}

    def child(module, folder, log, *, timeout, memory, waits, stop):
        if folder.name == "c":
            raise OSError("no process can be started")
        seen[f"{folder.name} before"] = waits()
        (folder / "ready").touch()
        seen[f"{folder.name} after"] = waits()
        stop.wait(60)
        seen[f"{folder.name} stopped"] = stop.is_set()
        return ChildEnd("timeout", -15)

    monkeypatch.setattr(engine_processes, "run_child", child)
    with pytest.raises(OSError, match="no process"):
        list(run_trials(folders, Bounds(60, GB), lambda index: None))
    assert (seen["a before"], seen["a after"], seen["a stopped"], seen["b stopped"]) == (
        False,
        True,
        True,
        True,
    )
    assert threading.active_count() < 20


@pytest.mark.parametrize(
    ("cores", "limit", "weights", "free", "expected"),
    [
        ([0, 1], 0, 10**8, 24 * GB, (3, 6 * GB)),
        ([0], 0, 10**8, 24 * GB, (1, 12 * GB)),
        ([0, 1], 0, 10 * GB, 24 * GB, (1, 12 * GB)),  # no room for two
        ([0, 1], 4 * GB, 0, 9 * GB, (2, 4 * GB)),
        (range(64), 0, 0, 200 * GB, (4, 40 * GB)),
    ],
)
def test_as_many_build_as_there_are_cores_and_memory_for(cores, limit, weights, free, expected, monkeypatch):
    monkeypatch.setattr(engine_processes.os, "sched_getaffinity", lambda process: cores)
    engines = 4
    assert at_a_time(engines, limit, weights, free) == expected


@pytest.fixture
def sleeper(tmp_path, monkeypatch):
    """The name of a module that sleeps for a second."""
    (tmp_path / "sleeper.py").write_text("import time; time.sleep(1)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "sleeper"


@pytest.mark.parametrize(("waits", "how"), [(True, "exited"), (False, "timeout")])
def test_waiting_for_the_caller_is_not_counted(sleeper, waits, how, tmp_path):
    end = run_child(sleeper, tmp_path, tmp_path / "log", timeout=0.3, waits=lambda: waits)
    assert end.how == how


def test_a_child_is_ended_when_its_caller_wants_that(sleeper, tmp_path):
    stop = threading.Event()
    stop.set()
    assert run_child(sleeper, tmp_path, tmp_path / "log", stop=stop).how == "timeout"

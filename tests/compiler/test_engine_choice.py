"""`auto`: every engine is tried in its own process, and the best one with correct results runs the model."""

import json
import threading
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

import torchport
from compiler.engine_targets import ENGINES
from installed_targets import install_targets
from torchport import capture
from torchport.compiler import engine_choice, engine_processes
from torchport.compiler.engine_choice import ChoiceProgress, choose_engine, rank, telling
from torchport.errors import CompileError, RuntimeRefusal, TargetError, TorchportError
from torchport.records import EngineTry, Tries
from torchport.targets import registry
from torchport.targets.auto import AutoOptions

pytestmark = pytest.mark.usefixtures("forked_python")

X = torch.randn(16, 512)
FATAL = ["segfaults", "hungry", "mistaken", "raises", "absent", "slower", "quick"]


class Deep(nn.Module):
    """Takes some milliseconds with eager torch."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(512, 512) for _ in range(12)])

    def forward(self, x):
        return {"y": torch.relu(self.layers(x))}


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """Registers the test engines, here and in the processes of trials."""
    file = Path(__file__).parent / "engine_targets.py"
    install_targets(tmp_path / "installed", file, {kind.name: kind.__name__ for kind in ENGINES}, monkeypatch)
    monkeypatch.setenv("STUCK_PROCESS", str(tmp_path / "stuck"))
    yield
    registry._all.cache_clear()


@pytest.fixture
def model():
    return Deep().eval()


def is_running(pid):
    """Whether a process runs; one that was killed may still wait to be reaped by its new parent."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Heard(ChoiceProgress):
    def __init__(self):
        self.lines = []

    def trying(self, engine, number, engines):
        self.lines.append((engine, number, engines))

    def tried(self, row):
        self.lines.append(row.status)


@pytest.mark.usefixtures("engines")
def test_an_engine_that_dies_costs_its_turn_and_the_table_says_how(model):
    heard = Heard()
    options = {"engines": FATAL, "memory_mb": 2500, "budget_s": 4000}  # none of these hangs
    with telling(heard):
        compiled = torchport.compile(model, (X,), target="auto", options=options)
    rows = {row.engine: row for row in compiled.tries.rows}
    assert list(rows) == ["eager", *FATAL]
    assert {name: row.status for name, row in rows.items()} == {
        "eager": "ok",
        "segfaults": "crashed",
        "hungry": "memory",
        "mistaken": "refused",
        "raises": "failed",
        "absent": "refused",
        "slower": "ok",
        "quick": "ok",
    }
    assert "SIGSEGV, and last said: loading a bad pointer" in rows["segfaults"].reason
    assert "more than 2,500 MB" in rows["hungry"].reason
    assert "inaccurate" in rows["mistaken"].reason
    assert "in the scheduler" in rows["raises"].reason
    assert rows["absent"].reason == "its library is not installed; install it"
    assert rows["slower"].seconds > 0.05
    assert rows["quick"].ratio < 1
    assert rows["quick"].max_absolute < 1e-3
    assert rows["quick"].build_seconds > 0
    assert rows["quick"].peak_bytes > 10**7
    assert rows["hungry"].peak_bytes > 2.5e9
    assert (rows["quick"].ops_taken, rows["quick"].transfers) == (rows["quick"].ops, 2)
    assert rows["eager"].seconds > rows["quick"].seconds
    assert (compiled.tries.chosen, compiled.coverage.target) == ("quick", "quick")
    assert not compiled.tries.remembered
    torch.testing.assert_close(compiled(X)["y"], model(X)["y"])
    assert heard.lines[0] == ("segfaults", 1, 7)
    assert sorted(line for line in heard.lines if isinstance(line, str)) == sorted(
        row.status for row in rows.values() if row.engine != "eager"
    )
    assert Tries.from_json(json.loads(json.dumps(compiled.tries.to_json()))) == compiled.tries


@pytest.mark.usefixtures("engines")
def test_an_engine_that_hangs_is_ended_with_what_it_started(model, monkeypatch, tmp_path):
    # Its limit of one second starts when it hangs: on a busy machine, what comes before takes longer.
    bounds = {"timeout": 1, "waits": lambda: not (tmp_path / "stuck").exists()}
    run_child = engine_processes.run_child
    monkeypatch.setattr(
        engine_processes, "run_child", lambda *given, **usual: run_child(*given, **usual | bounds)
    )
    tries = torchport.compile(model, (X,), target="auto", options={"engines": ["stuck"]}).tries
    [eager, stuck] = tries.rows
    assert stuck.status == "timeout"
    assert stuck.reason.startswith("it took more than its ")
    assert eager.seconds > 0, "eager torch's measurement was written before"
    assert tries.chosen == "eager"
    assert not is_running(int((tmp_path / "stuck").read_text()))


@pytest.mark.usefixtures("engines")
def test_what_was_measured_is_remembered_for_this_machine_alone(model, monkeypatch):
    options = {"engines": ["quick"], "budget_s": 600}
    first = torchport.compile(model, (X,), target="auto", options=options).tries
    monkeypatch.setattr(engine_processes, "run_child", lambda *given, **bounds: pytest.fail("tried again"))
    again = torchport.compile(Deep().eval(), (X,), target="auto", options=options).tries
    assert again.remembered
    assert again.rows == first.rows

    def another(*given, **bounds):
        raise ZeroDivisionError

    monkeypatch.setattr(engine_processes, "run_child", another)
    with pytest.raises(ZeroDivisionError):
        torchport.compile(model, (X,), target="auto", options={**options, "objective": "memory"})
    monkeypatch.setattr(engine_choice, "machine", lambda: "another")
    with pytest.raises(ZeroDivisionError):
        torchport.compile(model, (X,), target="auto", options=options)


@pytest.fixture
def found(monkeypatch):
    """Lets a test set the results of trials, without starting processes."""

    def say(rows):
        monkeypatch.setattr(engine_choice, "_try_all", lambda *given: [*rows])

    return say


def row(engine, seconds, eager=1.0, **facts):
    times = {"seconds": seconds, "eager_seconds": eager, "fastest": seconds, "eager_fastest": eager}
    return EngineTry(engine, "ok", **{**times, "transfers": 2, "memory_bytes": 0, **facts})


EAGER = row("eager", 1.0, transfers=0)


@pytest.mark.parametrize(
    ("rows", "objective", "best"),
    [
        ([EAGER, row("a", 0.9), row("b", 0.5)], "latency", "b"),
        ([EAGER, row("a", 0.5, transfers=4), row("b", 0.51)], "latency", "b"),
        ([EAGER, row("a", 0.99)], "latency", "eager"),
        ([EAGER, row("a", 2.0, 4.0), row("b", 0.6)], "latency", "a"),
        ([EAGER, row("a", 0.9, fastest=0.1), row("b", 0.6)], "latency", "b"),
        ([EAGER, row("a", 0.1, fastest=1.2)], "latency", "eager"),
        ([EAGER, EngineTry("a", "wrong", 0.1, 1.0, fastest=0.1, eager_fastest=1.0)], "latency", "eager"),
        ([EAGER, row("a", 0.5)], "throughput", "a"),
        ([row("eager", 1.0, memory_bytes=2 * 10**9), row("a", 3.0, memory_bytes=10**9)], "memory", "a"),
        ([row("eager", 1.0, transfers=0, memory_bytes=10**7), row("a", 3.0)], "memory", "eager"),
        ([EngineTry("eager", "ok"), EngineTry("a", "crashed")], "latency", "eager"),
        ([EngineTry("eager", "ok"), row("a", 0.5)], "latency", "a"),
    ],
)
def test_the_best_is_the_fastest_that_is_right_and_within_the_noise_who_transfers_less(rows, objective, best):
    assert rank(rows, objective)[0].engine == best


@pytest.mark.usefixtures("engines")
def test_an_island_that_ends_its_process_in_a_child_stays_on_the_host():
    options = {"child_trial": True}
    compiled = torchport.compile(nn.ReLU(), (X,), target="segfaults", options=options)
    [row] = compiled.coverage.stayed
    assert row.reason == "build_failed"
    assert "was killed by SIGSEGV, and last said: loading a bad pointer" in row.detail
    assert torch.equal(compiled(X), X.relu())


@pytest.mark.usefixtures("engines")
def test_where_nothing_gains_eager_torch_runs_the_model_and_says_so(model, found, tmp_path):
    found([EAGER, row("quick", 1.5)])
    compiled = torchport.compile(model, (X,), target="auto")
    assert compiled.tries.chosen == "eager"
    assert compiled.coverage.islands == ()
    assert {stayed.reason for stayed in compiled.coverage.stayed} == {"slower"}
    assert "eager torch is the best" in compiled.coverage.stayed[0].detail
    assert torch.equal(compiled(X)["y"], model(X)["y"])
    torchport.save(compiled, tmp_path / "model.pt2")
    assert torch.equal(torchport.load(tmp_path / "model.pt2")(X)["y"], model(X)["y"])


def test_the_model_is_captured_once(model, found, monkeypatch):
    found([row("openvino", 0.5)])
    captured = []
    export = capture.export
    monkeypatch.setattr(
        capture, "export", lambda *given, **more: captured.append(1) or export(*given, **more)
    )
    compiled = torchport.compile(model, (X,), target="auto")
    torch.testing.assert_close(compiled(X)["y"], model(X)["y"])
    assert (compiled.coverage.target, len(captured)) == ("openvino", 1)


@pytest.mark.usefixtures("engines")
def test_an_engine_that_fails_here_after_all_makes_room_for_the_next(model, found):
    found([EAGER, row("raises", 0.1), row("quick", 0.5)])

    compiled = torchport.compile(model, (X,), target="auto")
    assert compiled.tries.chosen == "quick"


@pytest.mark.usefixtures("engines")
def test_eager_torch_serves_until_the_engine_is_there(model, found, monkeypatch):
    may_go_on = threading.Event()

    def wait(*given):
        assert may_go_on.wait(60)
        return [EAGER, row("quick", 0.5)]

    monkeypatch.setattr(engine_choice, "_try_all", wait)
    compiled = torchport.compile(model, (X,), target="auto", options={"serve_eager_while_building": True})
    torch.testing.assert_close(compiled(X)["y"], model(X)["y"])
    with pytest.raises(RuntimeRefusal):
        compiled(X.clone().requires_grad_())
    assert compiled.fallbacks.fallbacks == 1
    assert "on eager torch: an engine is being chosen" in repr(compiled)
    assert not compiled.wait(0)
    may_go_on.set()
    assert compiled.tries.chosen == "quick"
    assert compiled.coverage.target == "quick"
    assert "on quick: " in repr(compiled)
    torch.testing.assert_close(compiled(X)["y"], model(X)["y"])
    assert (compiled.fallbacks.calls, compiled.fallbacks.fallbacks) == (2, 1)
    assert set(compiled.state_dict()) == set(model.state_dict())


@pytest.mark.usefixtures("engines")
def test_a_choice_that_fails_leaves_the_model_with_eager_torch(model, monkeypatch):
    def fail(*given):
        raise CompileError("no way")

    monkeypatch.setattr(engine_choice, "_try_all", fail)
    compiled = torchport.compile(model, (X,), target="auto", options={"serve_eager_while_building": True})
    with pytest.raises(CompileError, match="no way"):
        compiled.wait()
    assert torch.equal(compiled(X)["y"], model(X)["y"])
    assert "on eager torch: no engine could be built" in repr(compiled)


def test_a_model_that_no_process_can_be_given_runs_eagerly(monkeypatch):
    def refuse(*given):
        raise ValueError("a script object")

    monkeypatch.setattr(torch.export, "save", refuse)
    tries = choose_engine(capture.export(nn.ReLU(), (X,)), AutoOptions(engines=("openvino",)))
    assert tries.chosen == "eager"
    assert tries.rows[1].status == "failed"
    assert "cannot be passed to another process" in tries.rows[1].reason


def test_the_budget_is_shared_and_ends(monkeypatch):
    clock = iter([0.0, 1.0, 61.0, 119.5, 120.0])
    given = []

    def child(module, folder, log, *, timeout, memory):
        given.append(timeout)
        log.write_text("")
        return engine_choice.ChildEnd("timeout", -9, 1)

    monkeypatch.setattr(engine_choice.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(engine_processes, "run_child", child)
    monkeypatch.setattr(engine_choice, "at_a_time", lambda *given: (1, 10**9))
    options = AutoOptions(engines=("openvino", "onnxruntime", "inductor"), budget_s=120, cache=False)
    tries = choose_engine(capture.export(nn.ReLU(), (X,)), options)
    assert given == [119 / 3, 59 / 2]
    assert [each.status for each in tries.rows] == ["ok", "timeout", "timeout", "skipped"]
    assert "the budget of 120 s was spent" in tries.rows[3].reason


def test_who_had_too_little_memory_among_others_is_tried_alone(monkeypatch):
    given = []

    def child(module, folder, log, *, memory, **more):
        given.append(memory)
        log.write_text("")
        return engine_choice.ChildEnd("memory" if "waits" in more else "timeout", -9, 2 * 10**9)

    monkeypatch.setattr(engine_processes, "run_child", child)
    monkeypatch.setattr(engine_choice, "at_a_time", lambda *given: (2, 10**9))
    monkeypatch.setattr(engine_choice, "_free_memory", lambda: 10**10)
    options = AutoOptions(engines=("openvino", "onnxruntime"), cache=False)
    tries = choose_engine(capture.export(nn.ReLU(), (X,)), options)
    assert given == [10**9, 10**9, 5 * 10**9, 5 * 10**9]
    assert [each.status for each in tries.rows] == ["ok", "timeout", "timeout"]


def test_tensors_elsewhere_are_for_engines_that_take_them():
    captured = capture.export(nn.ReLU(), (torch.ones(2, device="meta"),))
    tries = choose_engine(captured, AutoOptions(engines=("openvino",)))
    assert tries.rows[1].reason == "it takes no tensors on meta"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engines": ["openvin"]}, "no target named 'openvin'"),
        ({"engines": ["host"]}, "its timings on this machine are not meaningful"),
        ({"engines": ["auto"]}, "no target named 'auto'"),
        ({"objective": "speed"}, "unknown objective 'speed'"),
        ({"budget_s": 0}, "budget_s must be at least 1"),
        ({"memory_mb": -1}, "memory_mb must be at least 0"),
        ({"precision": "bfloat16"}, "the target has no option 'precision'"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_runs(options, said):
    with pytest.raises(TargetError, match=said):
        torchport.compile(nn.ReLU(), (X,), target="auto", options=options)


@pytest.mark.parametrize(
    "use",
    [
        lambda: torchport.explain(nn.ReLU(), (X,), target="auto"),
        lambda: torchport.trace(nn.ReLU().eval(), X, target="auto"),
        lambda: torchport.backend(None, (), options={"target": "auto"}),
    ],
)
def test_where_nothing_is_measured_auto_is_refused_with_what_to_do(use):
    with pytest.raises(TorchportError, match="name a target"):
        use()

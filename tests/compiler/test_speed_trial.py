"""Islands that are slower than eager torch are found, and the ops at fault stay on the host."""

import itertools
import time
from types import SimpleNamespace

import pytest
import torch
from torch import fx

import torchport
from compiler.devices import DEVICES, FAULTY
from torchport.compiler import build, cache, speed_trial
from torchport.compiler.speed_trial import Speed, time_in_turns
from torchport.packaging.trace_model import TraceSettings

X = torch.randn(2, 4)

pytestmark = pytest.mark.usefixtures("devices")


@pytest.fixture(autouse=True)
def speed_trial_on(no_speed_trial, monkeypatch):
    monkeypatch.delenv("TORCHPORT_SPEED_TRIAL")


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch):
    """What is found on a busy machine is not kept, so it would be timed again."""
    monkeypatch.setattr(speed_trial, "_preemptions", lambda: 0)


def model(x):
    return torch.relu(torch.tanh(x * 2) + 1)


def seconds(call):
    began = time.perf_counter()
    call(X)
    return time.perf_counter() - began


def compiled_for(target, **options):
    compiled = torchport.compile(model, (X,), target=target, options=options)
    torch.testing.assert_close(compiled(X), model(X))
    return compiled.coverage


def test_the_op_that_the_engine_s_clock_finds_at_fault_stays_with_the_two_times():
    coverage = compiled_for("slow")
    [row] = coverage.stayed
    assert (row.op, row.reason) == (FAULTY, "slower")
    assert f"{FAULTY} (kernel ref_any) takes 20.00 ms on slow, 0." in row.detail
    assert "speed_trial=False" in row.remedy
    assert [island.ops for island in coverage.islands] == [1, 2]


def test_where_the_engine_has_no_clock_the_island_stays_and_the_model_runs_eagerly():
    coverage = compiled_for("clockless")
    assert {row.reason for row in coverage.stayed} == {"slower"}
    assert "the island of 4 ops takes 2" in coverage.stayed[0].detail
    assert coverage.islands == ()


def test_eager_torch_is_stopped_where_it_takes_much_longer(monkeypatch):
    seen = []

    def slow(x):
        for index in range(5):
            seen.append(index)
            time.sleep(0.02)
        return x

    graph = fx.Graph()
    value = graph.placeholder("x")
    for _ in range(3):
        value = graph.call_function(slow, (value,))
    graph.output(value)
    piece = SimpleNamespace(island=SimpleNamespace(graph_module=fx.GraphModule({}, graph)))
    assert not speed_trial._ends_within(piece, [X], 0.05)
    assert len(seen) == 5  # only the first op
    assert speed_trial._ends_within(piece, [X], 60)
    monkeypatch.setattr(speed_trial, "_ends_within", lambda *given: False)
    monkeypatch.setattr(speed_trial, "time_in_turns", lambda *given: pytest.fail("it was timed"))
    assert compiled_for("slow", cache=False).complete


def test_how_long_trials_take_is_told():
    with speed_trial.noting_time() as spent:
        assert compiled_for("slow").stayed
    assert spent.seconds > 3 * DEVICES["slow"].seconds  # it ran at least three times
    with speed_trial.noting_time() as spent:
        compiled_for("slow")
    assert spent.seconds == 0  # the result is cached


def test_slowness_that_comes_again_with_each_plan_is_never_a_failure(monkeypatch):
    def blame_one(piece, *given):
        return {piece.ops[0]: Speed(2.0, 1.0).verdict("an op", "slow")}

    def deep(x):
        for _ in range(40):
            x = torch.sin(x)
        return x

    monkeypatch.setattr(build, "find_slow_ops", blame_one)
    compiled = torchport.compile(deep, (X,), target="slow")
    torch.testing.assert_close(compiled(X), deep(X))
    assert 0 < compiled.coverage.ops_remain < 40


def test_what_was_measured_is_remembered_for_this_machine_alone(monkeypatch):
    assert len(compiled_for("slow").stayed) == 1
    monkeypatch.setattr(DEVICES["slow"], "seconds", 0.0)
    monkeypatch.setattr(speed_trial, "time_in_turns", lambda *given: pytest.fail("measured again"))
    assert len(compiled_for("slow").stayed) == 1
    monkeypatch.setattr(speed_trial, "machine", lambda: "another")
    monkeypatch.setattr(speed_trial, "time_in_turns", lambda *given: Speed(1.0, 2.0))
    assert compiled_for("slow").complete


@pytest.mark.parametrize(
    "slow", [{"9" * 5000: {}}, {"²": {}}, {"99": {}}, {"0": 1}, {"0": {"supported": "no"}}, []]
)
def test_a_damaged_note_is_measured_again(slow, monkeypatch):
    read = cache.read

    def damaged(name):
        kept = read(name)
        if kept is not None and "slow" in kept.properties:
            kept.properties["slow"] = slow
        return kept

    assert len(compiled_for("slow").stayed) == 1
    monkeypatch.setattr(cache, "read", damaged)
    monkeypatch.setattr(speed_trial, "time_in_turns", lambda *given: Speed(1.0, 2.0))
    assert compiled_for("slow").complete


def test_an_op_that_was_slower_while_the_machine_was_busy_is_timed_again(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(speed_trial, "_preemptions", itertools.count(step=1000).__next__)
        assert len(compiled_for("slow").stayed) == 1
    monkeypatch.setattr(DEVICES["slow"], "seconds", 0.0)
    monkeypatch.setattr(speed_trial, "time_in_turns", lambda *given: Speed(1.0, 2.0))
    assert compiled_for("slow").complete
    monkeypatch.setattr(speed_trial, "time_in_turns", lambda *given: pytest.fail("measured again"))
    assert compiled_for("slow").complete


@pytest.mark.parametrize("way", ["option", "variable", "simulated"])
def test_no_trial_where_none_is_wanted(way, monkeypatch):
    options = {}
    if way == "option":
        options["speed_trial"] = False
    elif way == "variable":
        monkeypatch.setenv("TORCHPORT_SPEED_TRIAL", "0")
    else:
        monkeypatch.setattr(DEVICES["slow"], "is_timed", False)
    assert compiled_for("slow", **options).complete


def test_torch_compile_and_the_trial(torch_compile):
    fast = torch_compile(model, "slow")
    torch.testing.assert_close(fast(X), model(X))
    assert min(seconds(fast) for _ in range(5)) < DEVICES["slow"].seconds


def test_a_trace_that_may_leave_nothing_on_the_host_takes_what_is_slower():
    traced = torchport.trace(
        model, X, target="slow", settings=TraceSettings(fallback=False, child_process=False)
    )
    torch.testing.assert_close(traced(X), model(X))


@pytest.mark.parametrize(
    ("takes", "allowed", "runs"),
    [
        ([0.0, 0.0, 0.0], 10.0, 3),
        ([0.0], -1.0, 1),
        ([0.1] * 3, -1.0, 3),  # one, and two more to confirm
        ([0.1] * 10, 10.0, 10),  # three, and seven more to confirm
        ([0.1, 0.1, 0.1, 0.1, 0.0], 10.0, 5),  # the others were disturbed
    ],
)
def test_a_trial_ends_with_its_time_unless_an_island_seems_slower(monkeypatch, takes, allowed, runs):
    left = list(takes)
    monkeypatch.setattr(speed_trial, "seconds_of", lambda call: call())
    found = time_in_turns(lambda: left.pop(0), lambda: 0.001, allowed)
    assert len(takes) - len(left) == runs
    assert found == Speed(min(takes), 0.001, runs)


@pytest.mark.parametrize(
    ("seconds", "eager", "runs", "slower"),
    [
        (0.010, 0.005, 3, True),
        (0.010, 0.0097, 10, False),
        (0.0107, 0.010, 10, True),
        (0.0107, 0.010, 5, False),
        (0.012, 0.010, 5, True),
        (0.012, 0.010, 3, False),
        (0.0003, 0.0001, 10, False),
        (0.001, 0.010, 10, False),
    ],
)
def test_slower_means_clearly_slower(seconds, eager, runs, slower):
    assert Speed(seconds, eager, runs).is_slower is slower


def test_openvino_tells_the_time_and_kernel_of_each_op():
    from targets.graphs import island_of

    found = torchport.targets.find("openvino")
    island = island_of(lambda x: torch.nn.functional.max_pool2d(torch.relu(x @ x), 2), torch.rand(1, 8, 8))
    times = found.op_times(island, found.make_options({}), [torch.rand(1, 8, 8)])
    names = {node.name for node in island.graph_module.graph.nodes}
    assert {time.node for time in times if time.node in names}
    assert all(time.kernel and time.seconds >= 0 for time in times)

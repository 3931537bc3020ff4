"""Threads share a module: no thread sees the fake tensors of another one's compilation."""

import itertools
import threading
import traceback

import pytest
import torch
from torch._dynamo.convert_frame import compile_lock

import torchport
from shared_modules import SHARED, Shared, run_threads
from torchport.capture.untouched import torch_state


def works_on(shared):
    """What eight threads do: calls of two compiled models, eager calls, reading and changing weights."""
    module, inputs = shared.module, shared.inputs
    compiled = [torchport.compile(module, (inputs[0],), target="host") for _ in range(2)]
    numbers = itertools.count()

    def call(run):
        def work():
            index = next(numbers) % len(inputs)
            with torch.no_grad():
                return shared.problem(index, run(inputs[index]))

        return work

    def read():
        kinds = {type(value) for value in module.state_dict().values()}
        held = {type(value) for part in module.modules() for value in vars(part).values()}
        return (
            "" if kinds == {torch.Tensor} and not any("Fake" in kind.__name__ for kind in held) else "a fake"
        )

    def change():
        state = shared.states[next(numbers) % 2]
        # Atomic, as far as another thread can see: each call has all old weights or all new ones.
        with torch.no_grad():
            module.load_state_dict(state)
        return ""

    return compiled, [*map(call, [*compiled, *compiled, module, module]), read], change


@pytest.mark.parametrize("kind", SHARED)
def test_no_thread_sees_what_another_captures(kind):
    shared = Shared(SHARED[kind], rows=range(1, 4))
    compiled, works, _ = works_on(shared)
    assert run_threads(works, calls=6) == []
    for run in (*compiled, shared.module):
        for index, x in enumerate(shared.inputs):
            with torch.no_grad():
                torch.testing.assert_close(run(x), shared.legal[index][0])


def test_weights_that_are_loaded_while_another_thread_compiles_are_not_lost():
    """One weight, written at once: a call's result is that of the old value or of the new one."""
    shared = Shared(lambda: torch.nn.Linear(4, 4, bias=False), rows=range(1, 4))
    compiled, works, change = works_on(shared)
    assert run_threads([*works, change], calls=6) == []
    for number in (0, 1):
        shared.module.load_state_dict(shared.states[number])
        for run in compiled:
            for index, x in enumerate(shared.inputs):
                torch.testing.assert_close(run(x), shared.legal[index][number])


def test_weights_that_change_while_a_program_is_built_are_noticed(monkeypatch):
    from torchport.compiler import specialise

    module, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    build = specialise.build_program

    def build_and_change(*args):
        made = build(*args)
        with torch.no_grad():
            module.weight.fill_(3.0)
        return made

    monkeypatch.setattr(specialise, "build_program", build_and_change)
    compiled = torchport.compile(module, (x,), target="host")
    monkeypatch.undo()
    torch.testing.assert_close(compiled(x), module(x).detach())


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [None, True, False], ids=["ahead of time", "all sizes", "one size"])
def test_a_call_ends_though_the_weights_change_in_each_of_its_builds(monkeypatch, dynamic):
    from torchport.compiler import inference_graph, specialise

    module, x = torch.nn.Linear(2, 2), torch.ones(3, 2)
    if dynamic is None:
        compiled, stage = torchport.compile(module, (x,), target="host"), specialise
    else:
        options, stage = {"target": "host"}, inference_graph
        compiled = torch.compile(module, backend="torchport", options=options, dynamic=dynamic)
        torch.testing.assert_close(compiled(x), module(x))
    build, builds = stage.build_program, []

    def build_and_change(*args):
        made = build(*args)
        builds.append(made)
        if len(builds) < 10:
            module.weight.add_(1.0)
        return made

    monkeypatch.setattr(stage, "build_program", build_and_change)
    module.weight.add_(1.0)
    torch.testing.assert_close(compiled(x), module(x))
    assert 1 < len(builds) < 10
    fallbacks = compiled.fallbacks if dynamic is None else torchport.fallbacks()
    assert fallbacks.last_reason == "its weights change during the call"
    monkeypatch.undo()
    torch.testing.assert_close(compiled(x), module(x))


def compiled(target):
    return lambda model, x, folder: torchport.compile(model, (x,), target=target)


def saved(model, x, folder):
    torchport.save(torchport.compile(model, (x,), target="host"), folder / "model.pt2")
    return torchport.load(folder / "model.pt2")


def scripted(model, x, folder):
    return torchport.trace(model, (x,), target="host")


def trained(model, x, folder):
    made = torch.compile(model, backend="torchport", options={"target": "host"}, dynamic=True)
    made(x).sum().backward()
    return made


@pytest.mark.parametrize(
    "work",
    [
        *map(compiled, ("host", "onnxruntime", "openvino", "ttnn")),
        pytest.param(compiled("inductor"), marks=pytest.mark.conformance),
        saved,
        pytest.param(scripted, marks=pytest.mark.conformance),
        trained,
    ],
    ids=["host", "onnxruntime", "openvino", "ttnn", "inductor", "saved", "scripted", "trained"],
)
def test_whatever_traces_does_so_in_its_turn(work, monkeypatch, tmp_path):
    """torch's tracing state is global to the process: two threads that trace at once corrupt both graphs."""
    outside = []

    def watch(module, name):
        traces = getattr(module, name)

        def noticed(*args, **kwargs):
            if not torch_state._capturing and not compile_lock._is_owned():
                outside.append(traceback.format_stack(limit=8))
            return traces(*args, **kwargs)

        monkeypatch.setattr(module, name, noticed)

    watch(torch.fx.traceback, "preserve_node_meta")
    watch(torch.jit, "trace")
    watch(torch.export, "export")
    monkeypatch.setenv("TORCHPORT_CACHE_DIR", str(tmp_path))
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
    x = torch.randn(2, 3, 8, 8)
    made = work(model, x, tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(made(x), model(x), atol=0.1, rtol=0.1)
    assert outside == []


def test_a_compiled_graph_runs_while_another_thread_takes_a_training_graph_apart(monkeypatch):
    from torchport.compiler import training_graph

    theirs = torch.compile(torch.nn.Linear(3, 3), backend="eager")
    x, raised, calls = torch.randn(2, 3), [], []
    theirs(x)

    def call():
        try:
            calls.append(theirs(x))
        except RuntimeError as error:
            raised.append(error)

    def traced_beside(run):
        def beside(*args):
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
            return run(*args)

        return make_fx(beside)

    make_fx = training_graph.make_fx
    monkeypatch.setattr(training_graph, "make_fx", traced_beside)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    made = torch.compile(model, backend="torchport", options={"target": "host"}, dynamic=True)
    for rows in (2, 3):
        made(torch.randn(rows, 3)).sum().backward()
    assert calls
    assert raised == []

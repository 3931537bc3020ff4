"""`import torch` alone registers `torchport::island`, cheaply, and never fails because of it."""

import json
import sys
import threading
import time

import pytest
import torch

from runtime.fresh_process import run_fresh
from torchport.runtime import hook


def test_importing_torch_registers_the_op_and_imports_nothing_heavy():
    code = """
import sys, torch
print(torch.ops.torchport.island.default._schema)
print(sorted(name for name in sys.modules if name.split(".")[0] in ("torchport", "openvino", "safetensors")))
"""
    schema, modules = run_fresh(code).splitlines()
    assert schema == "torchport::island(Tensor blob, str meta, Tensor[] args) -> Tensor[]"
    assert modules == "['torchport', 'torchport.runtime', 'torchport.runtime.hook', 'torchport.version']"


def test_a_loaded_program_runs_in_a_process_that_imports_only_torch(tmp_path):
    import torchport

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).eval()
    compiled = torchport.compile(model, (torch.ones(1, 3),), target="host")
    graph = compiled._first.program.graph_module
    [call] = [node for node in graph.graph.nodes if node.target is torch.ops.torchport.island.default]
    x = torch.randn(1, 3)
    torch.save({"blob": getattr(graph, call.args[0].target), "x": x}, tmp_path / "tensors.pt")
    (tmp_path / "meta.json").write_text(call.args[1])
    code = """
import sys, torch
saved = torch.load(sys.argv[1] + "/tensors.pt", weights_only=True)
[result] = torch.ops.torchport.island(saved["blob"], open(sys.argv[1] + "/meta.json").read(), [saved["x"]])
print(result.tolist())
"""
    torch.testing.assert_close(torch.tensor(json.loads(run_fresh(code, str(tmp_path)))), model(x).detach())


@pytest.mark.usefixtures("forked_python")
def test_torch_compile_finds_the_backend_in_a_process_that_never_imports_torchport(own_cache):
    code = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
compiled = torch.compile(model, backend="torchport")
x = torch.randn(2, 4)
with torch.no_grad():
    print(torch.allclose(compiled(x), model(x), atol=1e-5))
"""
    assert run_fresh(code) == "True"
    assert list(own_cache.glob("*/*.island"))  # it was built for the default target, not run by eager torch


@pytest.mark.usefixtures("forked_python")
def test_threads_can_look_up_a_backend_concurrently(own_cache):
    code = """
import sys, threading, torch
sys.setswitchinterval(1e-5)
together, results = threading.Barrier(8), []
def first(name):
    together.wait()
    try:
        torch.compile(torch.nn.ReLU(), backend=name)
        results.append("found")
    except BaseException as error:
        results.append(repr(error))
threads = [threading.Thread(target=first, args=(name,)) for name in ["torchport", "torchport_stat"] * 4]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(set(results)))
"""
    assert run_fresh(code) == "['found']"


@pytest.mark.usefixtures("forked_python")
def test_another_backend_of_the_same_name_is_still_refused():
    code = """
import torch, torchport
torchport.backend
from torch._dynamo import register_backend
for _ in range(2):
    try:
        register_backend(lambda graph, inputs: graph, name="mine")
        print("registered")
    except AssertionError as error:
        print(error)
"""
    assert run_fresh(code).splitlines() == ["registered", "duplicate name: mine"]


def test_registering_from_many_threads_defines_the_op_once(monkeypatch):
    made = []

    class Library:
        def __init__(self, *_):
            time.sleep(0.01)
            made.append(self)

        def define(self, *_):
            """Like torch's."""

        impl = define

    monkeypatch.setattr(torch.library, "Library", Library)
    monkeypatch.setattr(torch.library, "register_fake", lambda *args, lib: None)
    monkeypatch.setattr(hook, "_library", None)
    threads = [threading.Thread(target=hook.register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_registering_twice_defines_the_op_once(caplog):
    library = hook._library
    with caplog.at_level("DEBUG", hook.__name__):
        hook.register()  # a second definition would fail, and a failure is logged
    assert hook._library is library is not None
    assert caplog.records == []


def test_errors_are_not_raised(monkeypatch):
    monkeypatch.setattr(hook, "_library", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    hook.register()
    assert hook._library is None


def test_a_program_registers_the_op_where_torch_loads_no_plug_ins(monkeypatch, tmp_path):
    """As if torchport were only on the import path: no distribution, so no entry points."""
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    code = """
import sys, torch
assert not hasattr(torch.ops.torchport, "island")
import torchport
x = torch.tensor([-1.0, 2.0])
compiled = torchport.compile(torch.nn.ReLU(), (x,), target="host")
print(compiled(x).tolist(), compiled.coverage.complete)
print(torch.compile(torch.nn.ReLU(), backend=torchport.backend, options={"target": "host"})(x).tolist())
print(torchport.fallbacks().fallbacks)
torchport.save(compiled, sys.argv[1])
"""
    path = str(tmp_path / "relu.pt2")
    assert run_fresh(code, path).splitlines() == ["[0.0, 2.0] True", "[0.0, 2.0]", "0"]
    load = (
        "import sys, torch, torchport; print(torchport.load(sys.argv[1])(torch.tensor([-1.0, 2.0])).tolist())"
    )
    assert run_fresh(load, path) == "[0.0, 2.0]"

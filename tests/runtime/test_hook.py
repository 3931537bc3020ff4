"""`import torch` alone makes `torchport::island` known, cheaply, and never fails for it."""

import json
import sys

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


def test_a_loaded_program_runs_in_a_process_that_imports_torch_alone(tmp_path):
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
    assert list(own_cache.glob("*/*.island"))  # it was built for the default target, and not run eagerly


def test_registering_twice_is_harmless():
    hook.register()
    hook.register()
    assert torch.ops.torchport.island.default is not None


def test_what_goes_wrong_is_not_raised(monkeypatch):
    monkeypatch.setattr(hook, "_library", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    hook.register()
    assert hook._library is None


def test_a_program_registers_the_op_where_torch_loads_no_plug_ins(monkeypatch, tmp_path):
    """As with torchport on the import path alone: no distribution, so no entry points."""
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

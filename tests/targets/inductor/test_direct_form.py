"""Graphs compiled by inductor, run without inductor: the direct form of packages, which loads at once."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchport
from runtime.fresh_process import run_fresh
from torchport.errors import TargetError
from torchport.targets.inductor.direct_run import CudaKernel, read
from torchport.targets.inductor.direct_write import _NotDirectError, split_module, to_direct_form
from torchport.torch_private import compiled_code, static_kernel

# A shortened example of a module that inductor generates.
MODULE = """
'''Compile-time auto-tuning block'''
import torch
import triton
from torch._inductor.hooks import run_intermediate_hooks
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
aten = torch.ops.aten
inductor_ops = torch.ops.inductor
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
async_compile = AsyncCompile()
cpp_fused_0 = async_compile.cpp_pybinding(['float*'], 'text')
async_compile.wait(globals())
del async_compile
class Runner:
    def call(self, args):
        x, y = args
        args.clear()
        buffer = empty_strided_cpu((2, 2), (2, 1), torch.float32)
        extern_kernels.mm(x, y, out=buffer)
        cpp_fused_0(buffer)
        return (buffer, )
runner = Runner()
call = runner.call
def benchmark_compiled_module():
    from torch._dynamo.testing import rand_strided
if __name__ == '__main__':
    benchmark_compiled_module()
"""


@pytest.fixture(autouse=True)
def own_inductor_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(16), nn.Linear(16, 48)
        self.image = nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, x, ids):
        q, k, v = self.up(self.norm(x)).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.image(y.unsqueeze(1)).relu().sum(1), ids + 1


def test_a_fresh_process_runs_a_package_without_the_compiler(tmp_path, monkeypatch):
    model = Attention().eval()
    given = torch.randn(2, 5, 16), torch.arange(3)
    options = {"child_trial": False, "speed_trial": False}
    compiled = torchport.compile(model, given, target="inductor", options=options)
    assert compiled.coverage.complete
    path = tmp_path / "model.pt2"
    torchport.save(compiled, path)
    torch.save((given, model(*given)), tmp_path / "given.pt")
    monkeypatch.setenv("CXX", "/no/such/compiler")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "another"))
    code = (
        "import sys, torch, torchport; given, expected = torch.load(sys.argv[2]);"
        f"torch.set_num_threads({torch.get_num_threads()});"
        "actual = torchport.load(sys.argv[1])(*given);"
        "assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(actual, expected));"
        "print(sorted({'torch._inductor', 'torch._dynamo', 'sympy', 'triton'} & set(sys.modules)))"
    )
    assert run_fresh(code, str(path), str(tmp_path / "given.pt")) == "[]"


def test_only_the_calls_are_taken_of_a_module():
    found = split_module(MODULE)
    assert found.kernels == ("cpp_fused_0",)
    assert found.extern == ("mm",)
    assert "import torch" in found.text
    assert not any(
        word in found.text for word in ("_inductor", "triton", "async_compile", "benchmark", "aten")
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("run_intermediate_hooks('x', buffer)", "the module needs run_intermediate_hooks"),
        ("buffer = triton.runtime(buffer)", "the module needs triton"),
        ("buffer = torch.ops.mylib.twice(buffer)", "ops of mylib are not torch's own"),
        ("buffer = inductor_ops.random(buffer)", "the module needs random of inductor"),
        ("buffer = torch.ops.inductor.random(buffer)", "the module needs random of inductor"),
    ],
)
def test_what_may_need_inductor_has_no_such_form(line, why):
    with pytest.raises(_NotDirectError, match=why):
        split_module(MODULE.replace("cpp_fused_0(buffer)", line))


def test_what_gives_other_results_or_is_made_otherwise_has_no_such_form(caplog):
    with caplog.at_level("INFO", logger="torchport"):
        assert to_direct_form(lambda x: [x + 1], [torch.ones(2)], "cpu") == b""
    assert "the module that inductor generated was not found" in caplog.text


@pytest.mark.parametrize("form", [b"", b"\0" * 8, b"\x02\0\0\0{}", b"\xff" * 40])
def test_a_damaged_form_is_refused(form):
    with pytest.raises(TargetError, match="cannot be loaded"):
        read(form)


class Made:
    """A stand-in for torch's record of a Triton kernel that it can launch without Triton."""

    name, num_warps, shared, arg_tys = "triton_add", 4, 128, "OOi"
    has_global_scratch, has_profile_scratch = True, True

    def run(self, *args):
        raise AssertionError


class Autotuner:
    def __init__(self, text="-(xnumel // -1024)"):
        scope = {"runner": Made().run}
        exec(f"def launcher(x, y, xnumel, stream):\n runner({text}, 1, 1, stream, x, y, xnumel)", scope)
        self.launchers = [scope["launcher"]]
        scope["launcher"].cache_hash = "HASH"


def test_a_kernel_of_triton_s_is_launched_by_torch_alone(tmp_path, monkeypatch):
    found = {"CachingAutotuner": Autotuner, "triton_cache_dir": lambda device: f"/cache/{device}"}
    monkeypatch.setattr(compiled_code, "find", found.__getitem__)
    kernel = static_kernel(Autotuner(), 0)
    assert kernel.cubin == "/cache/0/HASH/triton_add.cubin"
    calls = []
    launcher = SimpleNamespace(
        _load_kernel=lambda *given: calls.append(given) or (77, 16, 0),
        _launch_kernel=lambda *given: calls.append(given),
    )
    monkeypatch.setattr(torch._C, "_StaticCudaLauncher", launcher, raising=False)
    from torchport.targets.inductor import direct_write

    (tmp_path / "kernel.cubin").write_bytes(b"cubin")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(compiled_code, "find", {**found, "triton_cache_dir": lambda _: tmp_path}.__getitem__)
    (tmp_path / "HASH").mkdir()
    (tmp_path / "HASH" / "triton_add.cubin").write_bytes(b"cubin")
    entry, content = direct_write._kernel("triton_add_0", Autotuner(), "cuda")
    assert content == b"cubin"
    loaded = CudaKernel(tmp_path / "kernel.cubin", entry)
    loaded.run("x", "y", 3000, stream=9)
    assert calls == [
        (str(tmp_path / "kernel.cubin"), "triton_add", 128, 0),
        (77, 3, 1, 1, 4, 128, "OOiOO", ("x", "y", 3000, None, None), 9),
    ]


def test_kernels_that_are_launched_otherwise_are_not_taken(monkeypatch):
    monkeypatch.setattr(compiled_code, "find", {"CachingAutotuner": Autotuner}.__getitem__)
    assert static_kernel(Autotuner("grid_of(xnumel)"), 0) is None  # refers to a name that no file holds
    several = Autotuner()
    several.launchers *= 2
    assert static_kernel(several, 0) is None
    assert static_kernel(object(), 0) is None

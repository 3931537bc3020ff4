"""`torchport.trace`: each way to call it, each keyword, each kind of result."""

import json
import math
import subprocess
import time

import openvino
import pytest
import torch
from torch import nn

import torchport
from runtime.fresh_process import run_fresh
from torchport.errors import CompileError, PackageError, TargetError, VerificationError
from torchport.records import ProgramRecord
from torchport.verification import compare

pytestmark = pytest.mark.usefixtures("forked_python")

X = torch.tensor([[1.0, -2.0, 3.0, -4.0]])


def foo(x, y):
    return 2 * x + y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3)

    def forward(self, x):
        return self.conv(x)


def trace(*args, fallback=True, **kwargs):
    """Trace in this process; child processes are tested below."""
    settings = torchport.TraceSettings(child_process=False, fallback=fallback)
    return torchport.trace(*args, settings=settings, **kwargs)


def test_tracing_a_function(target):
    traced = trace(foo, (torch.rand(3), torch.rand(3)), target=target)
    assert isinstance(traced, torch.jit.ScriptFunction)
    x, y = torch.rand(3), torch.rand(3)
    assert torch.equal(traced(x, y), 2 * x + y)
    assert "torchport::island" in str(traced.graph)


def test_tracing_an_existing_module(target):
    net = Net().eval()
    image = torch.rand(1, 1, 3, 3)
    for module in (trace(net.forward, image, target=target), trace(net, image, target=target)):
        assert isinstance(module, torch.jit.ScriptModule)
        assert module._c._method_names() == ["forward"]
        torch.testing.assert_close(module(image), net(image).detach())


def test_saving_a_traced_resnet(tmp_path):
    model = torchport.zoo.load("timm:test_resnet.r160_in1k", weights=False)
    traced = trace(model.module.eval(), example_inputs=list(model.args))
    traced.save(tmp_path / "resnet.pt")
    torch.save(model.args[0], tmp_path / "image.pt")
    code = (
        "import sys, torch; folder = sys.argv[1]; image = torch.load(folder + '/image.pt');"
        "print(torch.jit.load(folder + '/resnet.pt')(image).tolist(), 'torchport.compiler' in sys.modules)"
    )
    with torch.no_grad():
        assert run_fresh(code, str(tmp_path)) == f"{traced(*model.args).tolist()} False"


def test_a_model_in_training_mode_is_returned_unchanged():
    net = Net()
    assert torchport.trace(net, torch.rand(1, 1, 3, 3)) is net
    forward = net.forward
    assert torchport.trace(forward, torch.rand(1, 1, 3, 3)) is forward


@pytest.mark.parametrize("inputs", [X, (X,), [X]], ids=["tensor", "tuple", "list"])
def test_example_inputs(inputs):
    assert trace(nn.ReLU().eval(), inputs, target="host")(X).tolist() == [[1, 0, 3, 0]]


def test_the_same_tensor_passed_twice_is_two_inputs():
    traced = trace(foo, (X, X), target="host")
    assert torch.equal(traced(X, X), 3 * X)
    assert torch.equal(traced(X, X + 1), 3 * X + 1)


def test_keyword_inputs_keep_their_names(tmp_path):
    class Scaled(nn.Module):
        def forward(self, x, *, scale, shift):
            return x * scale - shift

    traced = trace(
        Scaled().eval(), X, {"shift": torch.ones(4), "scale": torch.full((4,), 3.0)}, target="host"
    )
    traced.save(tmp_path / "scaled.pt")
    loaded = torch.jit.load(tmp_path / "scaled.pt")
    expected = (X * 3 - 1).tolist()
    assert loaded(X, scale=torch.full((4,), 3.0), shift=torch.ones(4)).tolist() == expected
    assert loaded(x=X, shift=torch.ones(4), scale=torch.full((4,), 3.0)).tolist() == expected


def test_nested_inputs_and_results(tmp_path):
    def nested(pair, named):
        return (pair[0] + 1, (pair[1] * 2, named["a"])), named["a"] - 1

    given = ((X, X + 1), {"a": X + 2})
    traced = trace(nested, given, target="host")
    traced.save(str(tmp_path / "nested.pt"))
    (first, (second, third)), fourth = torch.jit.load(tmp_path / "nested.pt")(*given)
    assert torch.equal(first, X + 1)
    assert torch.equal(second, (X + 1) * 2)
    assert torch.equal(third, X + 2)
    assert torch.equal(fourth, X + 1)


def test_a_dict_as_result_and_a_model_output_as_dict():
    from transformers.modeling_outputs import BaseModelOutput

    assert trace(lambda x: {"y": x + 1}, X, target="host")(X)["y"].tolist() == (X + 1).tolist()
    traced = trace(lambda x: BaseModelOutput(last_hidden_state=x + 1), X, target="host")
    assert {key: value.tolist() for key, value in traced(X).items()} == {
        "last_hidden_state": (X + 1).tolist()
    }


def test_a_result_that_torchscript_cannot_return_is_refused():
    with pytest.raises(PackageError, match=r"the result\[1\] is a int.*model\.pt2"):
        trace(lambda x: (x + 1, 3), X, target="host")


def test_buffers_start_with_the_models_values():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    model = Counts().eval()
    traced = trace(model, X, target="host")
    assert model.calls.item() == 0
    assert [traced(X)[0, 0].item() for _ in range(3)] == [1, 2, 3]
    assert model.calls.item() == 0


def test_another_shape_or_dtype_is_refused_and_not_broadcast():
    positions = torch.arange(3.0)[:, None]
    traced = trace(
        lambda x: x + positions[: x.shape[0]],
        torch.ones(3, 4),
        target="host",
        compiler_args={"keep_ops": ["aten.add"]},
    )
    with pytest.raises(torch.jit.Error, match=r"x has the shape \[1, 4\].*compiled for float32\[3, 4\]"):
        traced(torch.ones(1, 4))
    with pytest.raises(torch.jit.Error, match=r"x has another dtype.*compiled for float32\[3, 4\]"):
        traced(torch.ones(3, 4, dtype=torch.float64))


@pytest.mark.parametrize(
    "arguments",
    [["--threads", "3", "--ENABLE_CPU_PINNING", "NO"], ["threads=3", "--ENABLE_CPU_PINNING=NO"],
     {"threads": 3, "config": {"ENABLE_CPU_PINNING": "NO"}}],
)  # fmt: skip
def test_compiler_args(arguments):
    traced = trace(nn.Linear(4, 2).eval(), X, compiler_args=arguments)
    record = ProgramRecord.from_json(json.loads(traced.torchport_report))
    assert [island.options["threads"] for island in record.islands] == [3]
    assert record.islands[0].options["config"] == {"ENABLE_CPU_PINNING": "NO"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--thread", "3"], "no option 'thread': did you mean 'threads'"),
        (["3"], "the value '3' without a name"),
        ("--threads 3", "must be a list of strings or a dict"),
    ],
)
def test_invalid_compiler_args(arguments, message):
    with pytest.raises(TargetError, match=message):
        trace(nn.Linear(4, 2).eval(), X, compiler_args=arguments)


def test_check_trace(faulty_targets):
    options = {"target": "wrong", "compiler_args": ["check=false"]}
    with pytest.raises(VerificationError) as caught:
        trace(lambda x: {"a": x + 1, "b": x * 2}, X, **options)
    assert "differs from the model on check input 0" in str(caught.value)
    assert "max absolute error 0.01" in str(caught.value)
    assert caught.value.where.endswith(", a")
    traced = trace(lambda x: x + 1, X, check_trace=False, **options)
    assert torch.equal(traced(X), X + 1 + 0.01)


def test_check_tolerance(faulty_targets):
    options = {"target": "wrong", "compiler_args": ["check=false"]}
    assert trace(lambda x: x + 1, X, check_tolerance=0.02, **options)(X) is not None
    with pytest.raises(VerificationError):
        trace(lambda x: x + 1, X, check_tolerance=0.001, **options)


def test_check_inputs():
    calls = []

    def noted(x):
        calls.append(x.tolist())
        return x + 1

    trace(noted, X, target="host", check_inputs=[(X * 2,), (X * 3,)])
    assert calls[-2:] == [(X * 2).tolist(), (X * 3).tolist()]
    with pytest.raises(torch.jit.Error, match=r"has the shape \[2, 4\]"):
        trace(noted, X, target="host", check_inputs=[(X.repeat(2, 1),)])


def test_the_check_allows_for_the_targets_low_precision():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)).eval(), torch.randn(4, 64)
    with torch.no_grad():
        assert not compare(trace(model, x, target="ttnn")(x), model(x)).ok  # inaccurate for float32
    with pytest.raises(VerificationError, match="differs from the model"):
        trace(model, x, target="ttnn", check_tolerance=1e-4)


def test_without_fallback_the_op_that_stays_is_named():
    with pytest.raises(CompileError, match=r"aten\.sort\.stable stays on the host"):
        trace(lambda x: x.relu().sort(stable=True).values, X, fallback=False)
    assert trace(lambda x: x.relu(), X, fallback=False)(X).tolist() == [[1, 0, 3, 0]]


def test_min_island_size_and_what_is_kept():
    def stays(**options):
        traced = trace(
            nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), X, target="host", compiler_args=options
        )
        record = ProgramRecord.from_json(json.loads(traced.torchport_report))
        return {op.reason for op in record.coverage.stayed}, len(record.islands)

    assert stays() == (set(), 1)
    assert stays(min_island_size=20) == ({"island_too_small"}, 0)
    assert stays(keep_ops=["aten.relu"]) == ({"kept_by_option"}, 1)
    assert stays(keep_modules=["1"]) == ({"kept_by_option"}, 1)


def test_the_report_is_saved_too(tmp_path):
    trace(nn.ReLU().eval(), X, target="host", name="mine").save(tmp_path / "relu.pt")
    report = torch.jit.load(tmp_path / "relu.pt").torchport_report
    assert ProgramRecord.from_json(json.loads(report)).model == "mine"


def test_compiler_workdir_keeps_the_plan_the_graph_and_the_log(tmp_path):
    workdir = tmp_path / "work"
    traced = torchport.trace(nn.Linear(4, 2).eval(), X, compiler_workdir=workdir)
    with torch.no_grad():
        assert traced(X).shape == (1, 2)
    assert {path.name for path in workdir.iterdir()} == {"plan.json", "island_0"}
    plan = ProgramRecord.from_json(json.loads((workdir / "plan.json").read_text()))
    assert plan.coverage.ops_remain == 0
    graph = json.loads((workdir / "island_0" / "island.json").read_text())
    assert "aten.linear.default" in [call["op"] for call in graph["calls"]]
    assert (workdir / "island_0" / "compiler.log").is_file()
    assert (workdir / "island_0" / "payload.bin").is_file()
    model = openvino.Core().read_model(workdir / "island_0" / "model.xml")
    assert [list(port.shape) for port in model.inputs] == [[1, 4]]


@pytest.mark.parametrize("name", ["compiler_timeout", "check_tolerance"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1", True])
def test_impossible_numbers_are_refused(name, value):
    with pytest.raises(PackageError, match=f"{name} must be a number of at least 0, not"):
        torchport.trace(torch.relu, X, target="host", **{name: value})


def test_compiler_timeout(faulty_targets, tmp_path):
    log = tmp_path / "work" / "island_0" / "compiler.log"
    for seconds in (4, 20):  # retry longer if a busy machine did not start the compiler in time
        start = time.monotonic()
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            torchport.trace(
                lambda x: x.tanh() + 1,
                X,
                target="hangs",
                compiler_timeout=seconds,
                compiler_workdir=tmp_path / "work",
            )
        assert time.monotonic() - start < seconds + 40
        assert caught.value.timeout == seconds
        if "thinking about tanh" in log.read_text():
            return
    pytest.fail("the compiler did not say what it does")


def test_a_compiler_that_crashes_leaves_its_op_on_the_host(faulty_targets, tmp_path):
    traced = torchport.trace(lambda x: x.tanh() + 1, X, target="aborts", compiler_workdir=tmp_path / "work")
    assert torch.equal(traced(X), X.tanh() + 1)
    record = ProgramRecord.from_json(json.loads(traced.torchport_report))
    [stayed] = record.coverage.stayed
    assert (stayed.op, stayed.reason) == ("aten.tanh.default", "build_failed")
    assert "was killed by SIGABRT, and last said: tanh: internal compiler error" in stayed.detail
    assert [island.ops for island in record.coverage.islands] == [1]
    assert "internal compiler error" in (tmp_path / "work" / "island_0" / "compiler.log").read_text()


@pytest.mark.conformance  # a crash and no fallback are also tested separately
def test_a_compiler_that_crashes_is_an_error_without_fallback(faulty_targets):
    with pytest.raises(CompileError, match=r"aten\.tanh\.default stays on the host \(build_failed.*SIGABRT"):
        torchport.trace(
            lambda x: x.tanh(), X, target="aborts", settings=torchport.TraceSettings(fallback=False)
        )

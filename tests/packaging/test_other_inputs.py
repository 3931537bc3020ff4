"""Inputs that no island was built for: other shapes and values, if a file contains the model's own graph."""

import contextlib
import json

import pytest
import torch
from torch import nn
from torch.export import Dim

import torchport
from runtime.fresh_process import run_fresh
from torchport.errors import PackageError, RuntimeRefusal
from torchport.records import Fallbacks
from torchport.runtime.runnable_program import RunnableProgram

pytestmark = pytest.mark.usefixtures("forked_python")

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Uses its batch size, and takes another path for one batch size."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        y = self.norm(self.inner(x)).relu()
        if x.shape[0] == 7:
            y = y + 100
        return {"y": y.view(x.shape[0] * 2, 4)}


def trace(model, inputs, target="openvino", **settings):
    settings = torchport.TraceSettings(child_process=False, **settings)
    return torchport.trace(model, inputs, target=target, settings=settings)


def batch(size):
    return torch.rand(size, 4, generator=torch.Generator().manual_seed(size))


@pytest.mark.parametrize("example", [1, 3])
def test_dynamic_batch_size(example, target, tmp_path):
    model = Net().eval()
    trace(model, batch(example), target=target, dynamic_batch_size=True).save(tmp_path / "net.pt")
    loaded = torch.jit.load(tmp_path / "net.pt")
    with torch.no_grad():
        for size in (2, 3, 5, 64):
            torch.testing.assert_close(loaded(batch(size)), model(batch(size)))
        torch.testing.assert_close(loaded(batch(example)), model(batch(example)))
        with pytest.raises(RuntimeError, match="size 0 of tensor 0 != 7"):
            loaded(batch(7))  # the model itself takes another path here


def test_dynamic_batch_size_in_a_fresh_process(tmp_path):
    model = Net().eval()
    trace(model, X, dynamic_batch_size=True).save(tmp_path / "net.pt")
    code = (
        "import sys, torch; model = torch.jit.load(sys.argv[1]);"
        "print(model(torch.ones(5, 4))['y'].tolist(), 'torchport.compiler' in sys.modules)"
    )
    with torch.no_grad():
        assert run_fresh(code, str(tmp_path / "net.pt")) == f"{model(torch.ones(5, 4))['y'].tolist()} False"


def test_dynamic_batch_size_that_the_model_does_not_allow():
    weight = torch.rand(3, 4)
    with pytest.raises(PackageError, match="does not allow any of its input sizes to vary"):
        trace(lambda x: x * weight, X, target="host", dynamic_batch_size=True)


def test_dynamic_shapes_of_named_dimensions():
    length = Dim("length", min=2, max=6)
    traced = trace(lambda x, y: x + y, (X, X * 2), target="host", dynamic_shapes=({1: length}, {1: length}))
    wide = torch.rand(3, 6)
    assert torch.equal(traced(wide, wide * 2), wide * 3)
    for wrong in (torch.rand(3, 7), torch.rand(4, 4)):
        with pytest.raises(RuntimeError, match=r"captured for shapes with|was built for"):
            traced(wrong, wrong)
    with pytest.raises(RuntimeError, match=r"captured for shapes with"):
        traced(wide, wide[:, :1])  # eager torch would broadcast this, but the example did not


def test_dynamic_shapes_any_of_a_function():
    traced = trace(lambda x: x.t() @ x, X, target="host", dynamic_shapes="any")
    assert isinstance(traced, torch.jit.ScriptFunction)
    other = torch.rand(5, 9)
    assert torch.equal(traced(other), other.t() @ other)


def test_both_kinds_of_dynamic_shapes_are_refused():
    with pytest.raises(PackageError, match="both dynamic_batch_size and dynamic_shapes"):
        trace(nn.ReLU().eval(), X, target="host", dynamic_batch_size=True, dynamic_shapes="any")


def test_a_model_that_mutates_a_buffer_takes_no_other_shapes():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    with pytest.raises(PackageError, match="it writes to buffers or inputs"):
        trace(Counts().eval(), X, target="host", dynamic_batch_size=True)


def test_a_result_structure_that_depends_on_a_size_fixes_that_size():
    def several(x):
        return [x + 1, x + 2, x + 3][: x.shape[0]]

    traced = trace(several, torch.rand(2, 4), target="host", dynamic_shapes="any")
    wide = torch.rand(2, 9)
    assert [tensor.tolist() for tensor in traced(wide)] == [(wide + 1).tolist(), (wide + 2).tolist()]
    with pytest.raises(RuntimeError, match=r"was built for|captured for"):
        traced(torch.rand(3, 4))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.pt2"


@pytest.mark.parametrize("target", [pytest.param("host", marks=pytest.mark.conformance), "openvino"])
def test_a_package_with_its_graph_takes_other_shapes(path, target):
    model = Net().eval()
    compiled = torchport.compile(model, (X,), target=target)
    torchport.save(compiled, path, with_graph=True)
    loaded = torchport.load(path)
    for size in (3, 2, 64):
        assert torch.equal(loaded(batch(size))["y"], compiled(batch(size))["y"])  # both compile for it
        with torch.no_grad():
            torch.testing.assert_close(loaded(batch(size)), model(batch(size)))
    with pytest.raises(RuntimeRefusal, match="size 0 of tensor 0 != 7"):
        loaded(batch(7))
    with pytest.raises(RuntimeRefusal, match=r"float64\[3, 4\]"):
        loaded(X.double())
    assert torch.equal(torch.export.load(path).module()(X)["y"], compiled(X)["y"])


def test_the_graph_is_used_for_batch_size_one_if_it_makes_the_same_calls(path):
    model, one = Net().eval(), batch(1)
    torchport.save(torchport.compile(model, (one,)), path, with_graph=True)
    loaded = torchport.load(path)
    odd = torch.full((1, 4), float("nan"))
    with torch.no_grad():
        torch.testing.assert_close(loaded(odd), model(odd), equal_nan=True)
        torch.testing.assert_close(loaded(batch(5)), model(batch(5)))


def test_a_special_case_for_batch_size_one_is_not_used_for_other_sizes(path):
    def function(x):
        return x.relu() if x.shape[0] > 1 else x.relu().clamp(max=1e9)

    torchport.save(torchport.compile(function, (batch(1),)), path, with_graph=True)
    loaded = torchport.load(path)
    assert torch.equal(loaded(batch(1)), batch(1))
    assert torch.equal(loaded(batch(5)), batch(5))
    with pytest.raises(RuntimeRefusal, match="size 0 of tensor 0 >= 2"):
        loaded(torch.full((1, 4), float("nan")))


def test_a_size_returned_as_a_number_is_right_or_refused(path):
    compiled = torchport.compile(lambda x: (x + 1, x.shape[0]), (X,), target="host")
    torchport.save(compiled, path, with_graph=True)  # the graph is kept only for the example's shape
    loaded = torchport.load(path)
    assert loaded(X)[1] == 3
    with pytest.raises(RuntimeRefusal):
        loaded(batch(5))


ODD = {
    "nan": X * float("nan"),
    "one nan": torch.where(torch.arange(4) == 2, float("nan"), X),
    "inf": torch.where(torch.arange(4) == 2, float("inf"), X),
    "minus inf": torch.where(torch.arange(4) == 1, float("-inf"), X),
    "huge": X * 3e38,
    "denormal": X * 1e-40,
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A function of floats and one of integers, each in one file without its graph and one with it."""

    def on_floats(x):
        return x.relu(), x.softmax(-1), x.amax(1), (x * 2).sigmoid(), x @ x.t()

    def on_integers(x):
        return (x + 1).to(torch.float32), x.abs(), x // 3

    folder = tmp_path_factory.mktemp("odd")
    made = {}
    for function, example in ((on_floats, X), (on_integers, torch.tensor([[1, 2], [3, 4]]))):
        compiled = torchport.compile(function, (example,))
        torchport.save(compiled, folder / "plain.pt2")
        torchport.save(compiled, folder / "graph.pt2", with_graph=True)
        loaded = [torchport.load(folder / name) for name in ("plain.pt2", "graph.pt2")]
        made[function.__name__] = (function, *loaded)
    return made


def check_odd(packages, name, value):
    """Without the graph, the call is right or refused; with it, it is right."""
    function, plain, with_graph = packages[name]
    expected = function(value)
    with contextlib.suppress(RuntimeRefusal):
        torch.testing.assert_close(plain(value), expected, equal_nan=True)
    torch.testing.assert_close(with_graph(value), expected, equal_nan=True)


@pytest.mark.parametrize("value", ODD.values(), ids=ODD.keys())
def test_odd_floats(packages, value):
    check_odd(packages, "on_floats", value)


@pytest.mark.parametrize("number", [0, 7, -1, 2**31 - 1, 2**31, 2**53 + 1, -(2**63)])
def test_odd_integers(packages, number):
    check_odd(packages, "on_integers", torch.tensor([[1, number], [3, 4]]))


def test_a_refusal_has_advice(packages):
    _, plain, _ = packages["on_floats"]
    with pytest.raises(RuntimeRefusal, match="with_graph=True"):
        plain(ODD["nan"])


def test_fallbacks_to_eager_torch_are_counted(path):
    compiled = torchport.compile(torch.relu, (X,))
    torchport.save(compiled, path, with_graph=True)
    loaded = torchport.load(path)
    nan = torch.full((3, 4), float("nan"))
    for value in (X, nan, X):
        torch.testing.assert_close(loaded(value), value, equal_nan=True)
    assert (loaded.fallbacks.calls, loaded.fallbacks.fallbacks) == (3, 1)
    assert loaded.fallbacks.last_reason
    for value in (batch(5), torch.full((5, 4), float("nan"))):  # another shape, compiled here
        torch.testing.assert_close(loaded(value), value, equal_nan=True)
    assert (loaded.fallbacks.calls, loaded.fallbacks.fallbacks) == (5, 2)


def test_if_the_device_raises_the_graph_is_run(path, monkeypatch):
    torchport.save(torchport.compile(torch.relu, (X,), target="host"), path, with_graph=True)
    torchport.save(torchport.compile(torch.relu, (X,), target="host"), path.with_name("plain.pt2"))
    loaded, plain = torchport.load(path), torchport.load(path.with_name("plain.pt2"))

    def fail(*_):
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(RunnableProgram, "run", fail)
    assert torch.equal(loaded(X), X)
    assert loaded.fallbacks == Fallbacks(1, 1, "RuntimeError: the device is gone")
    with pytest.raises(RuntimeError, match="the device is gone"):
        plain(X)


def test_an_index_out_of_range_is_an_error_and_never_a_wrong_result(path):
    model = nn.Embedding(5, 3).eval()
    compiled = torchport.compile(model, (torch.tensor([0, 4]),))
    torchport.save(compiled, path, with_graph=True)
    loaded = torchport.load(path)
    with torch.no_grad():
        assert torch.equal(loaded(torch.tensor([4, 1])), model(torch.tensor([4, 1])))
    with pytest.raises(RuntimeRefusal, match=r"aten.embedding.default raised IndexError: index out of range"):
        loaded(torch.tensor([0, 5]))


def test_inputs_that_are_not_contiguous(path):
    model = Net().eval()
    torchport.save(torchport.compile(model, (X,)), path, with_graph=True)
    loaded = torchport.load(path)
    strided = batch(6)[::2]
    with torch.no_grad():
        torch.testing.assert_close(loaded(strided), model(strided))
        torch.testing.assert_close(loaded(X.t().contiguous().t()), model(X))
    torchport.save(torchport.compile(model, (X,)), path)
    with pytest.raises(RuntimeRefusal, match="not contiguous"):
        torchport.load(path)(strided)


def test_keep_is_a_function_of_the_op_and_its_module():
    seen = []

    def keep(op, module):
        seen.append((op, module))
        return module == "norm"

    report = json.loads(trace(Net().eval(), X, target="host", keep=keep).torchport_report)
    assert ("aten.relu.default", "") in seen
    assert {(op["module_path"], op["reason"]) for op in report["coverage"]["stayed"]} == {
        ("norm", "kept_by_option")
    }
    assert trace(Net().eval(), X, keep=lambda op, module: op == "aten.relu.default")(X)["y"].shape == (6, 4)


def test_random_inputs_whose_elements_share_memory(path):
    """An expanded example has strides of zero, and torch refuses to write to such a tensor as a whole."""
    model, example = nn.Linear(4, 2).eval(), torch.rand(1, 4).expand(3, 4)
    torchport.save(torchport.compile(model, (example,), target="host", options={"cache": False}), path)
    [output] = torchport.run_package(path).outputs
    assert output.shape == (3, 2)

"""Islands are built and tried; ops that fail stay on the host with a reason."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import torchport
from compiler.devices import FAULTY, Refuser
from torchport.compiler import culprits
from torchport.compiler.build import Source, build_program
from torchport.compiler.normalise import NormalGraph, Weight
from torchport.errors import CompileError
from torchport.structure import Structure
from torchport.structure.nodes import Leaf
from torchport.targets.host import HostTarget

X = torch.randn(2, 4)


def model(x):
    return torch.relu(torch.tanh(x * 2) + 1)


def tried_ops(monkeypatch):
    """Return a list that gets the ops of each island that is built to find those at fault."""
    tried = []
    build = Refuser.build

    def noting(self, island, options):
        if island.name.startswith("only_"):
            nodes = island.graph_module.graph.nodes
            tried.append([str(node.target) for node in nodes if node.op == "call_function"])
        return build(self, island, options)

    monkeypatch.setattr(Refuser, "build", noting)
    return tried


@pytest.mark.usefixtures("devices")
class TestDevicesThatGoWrong:
    @pytest.mark.parametrize(
        ("device", "reason", "detail"),
        [
            ("liar", "inaccurate", f"{FAULTY} differs from eager torch: output 0: 8 of 8 elements differ"),
            ("refuser", "build_failed", "tanh is beyond me"),
            ("crasher", "build_failed", "ZeroDivisionError: in the scheduler"),
        ],
    )
    def test_the_op_at_fault_stays_and_the_others_go(self, device, reason, detail):
        compiled = torchport.compile(model, (X,), target=device)
        [row] = compiled.coverage.stayed
        assert (row.op, row.reason) == (FAULTY, reason)
        assert detail in row.detail
        assert [island.ops for island in compiled.coverage.islands] == [1, 2]
        torch.testing.assert_close(compiled(X), model(X))

    def test_where_no_op_is_at_fault_alone_the_island_stays(self):
        compiled = torchport.compile(model, (X,), target="whole")
        assert {row.reason for row in compiled.coverage.stayed} == {"build_failed"}
        assert compiled.coverage.ops_remain == compiled.coverage.ops_before
        torch.testing.assert_close(compiled(X), model(X))

    def test_calls_that_differ_in_values_alone_are_built_once_to_find_the_one_at_fault(self, monkeypatch):
        def repeated(x, y):
            for _ in range(6):
                x = torch.tanh(x) + 1
                y = y @ y
            return x, y, torch.tanh(y)

        tried = tried_ops(monkeypatch)
        compiled = torchport.compile(repeated, (X, torch.eye(3)), target="refuser")
        assert [row.op for row in compiled.coverage.stayed] == [FAULTY] * 7
        # tanh of either shape, the sum, and the product
        assert sorted(tried[0]) == ["aten.add.Tensor", "aten.mm.default", FAULTY, FAULTY]
        torch.testing.assert_close(compiled(X, torch.eye(3)), repeated(X, torch.eye(3)))

    def test_the_one_at_fault_among_many_is_found_in_few_builds(self, monkeypatch):
        def long(x):
            for number in range(40):
                x = x * (1 + number / 1000)
                x = torch.tanh(x) if number == 27 else x
            return x

        tried = tried_ops(monkeypatch)
        compiled = torchport.compile(long, (X,), target="refuser")
        assert [row.op for row in compiled.coverage.stayed] == [FAULTY]
        assert len(tried[0]) == 41
        assert len(tried) <= 13  # two for each time that 41 is halved, and one
        torch.testing.assert_close(compiled(X), long(X))

    def test_large_ops_are_not_built_together(self, monkeypatch):
        monkeypatch.setattr(culprits, "_MOST_BYTES", 2 * X.nbytes)
        tried = tried_ops(monkeypatch)
        compiled = torchport.compile(model, (X,), target="refuser")
        assert [row.op for row in compiled.coverage.stayed] == [FAULTY]
        assert tried == [["aten.mul.Tensor"], [FAULTY], ["aten.add.Tensor"], ["aten.relu.default"]]

    def test_an_operand_out_of_range_does_not_hide_another_op_s_fault(self):
        def both(x):
            return torch.relu(-x), torch.tanh(x)

        compiled = torchport.compile(both, (X.abs(),), target="picky_liar")
        assert [row.op for row in compiled.coverage.stayed] == [FAULTY]

    def test_a_user_who_wants_no_check_gets_none(self):
        compiled = torchport.compile(model, (X,), target="liar", options={"check": False})
        assert compiled.coverage.complete
        assert not torch.allclose(compiled(X), model(X))

    def test_example_inputs_that_an_island_does_not_take_are_no_fault_of_its_own(self):
        compiled = torchport.compile(torch.sqrt, (torch.tensor([-1.0, 4.0]),), target="picky")
        assert compiled.coverage.complete
        assert compiled(torch.tensor([9.0, 4.0])).tolist() == [3.0, 2.0]
        assert compiled(torch.tensor([-1.0, 4.0]))[1].item() == 2.0


def test_a_model_without_weights_is_refused_and_can_be_explained():
    with torch.device("meta"):
        linear = nn.Linear(4, 3)
    with pytest.raises(CompileError, match="no weights or inputs in memory") as caught:
        torchport.compile(linear, (torch.empty(2, 4, device="meta"),), target="host")
    assert "torchport.explain works without them" in caught.value.remedy
    assert torchport.explain(linear, (torch.empty(2, 4, device="meta"),), target="openvino").ops_remain == 0


def test_a_model_of_fake_tensors_is_refused():
    with FakeTensorMode():
        linear = nn.Linear(4, 3)
        x = torch.empty(2, 4)
    with pytest.raises(CompileError, match="no weights or inputs in memory"):
        torchport.compile(linear, (x,), target="host")


def test_building_leaves_weights_inputs_and_the_generator_alone(target):
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    x, state = X.clone(), torch.get_rng_state()
    torchport.compile(net, (x,), target=target)
    torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(x, X)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_the_model_raises_on_the_example_inputs_is_said(target):
    with pytest.raises(CompileError, match="the model raises IndexError: index out of range in self"):
        torchport.compile(nn.Sequential(nn.Embedding(5, 2), nn.ReLU()), (torch.tensor([7]),), target=target)


class OnCuda(torch.Tensor):
    """A CPU tensor that claims to be on another device."""

    @property
    def device(self):
        return torch.device("cuda:0")


@pytest.mark.parametrize("place", ["an input", "a weight"])
def test_tensors_on_another_device_are_refused_with_the_remedy(place):
    graph = torch.fx.Graph()
    graph.output((graph.placeholder("x"),))
    weights = {"weight_0": Weight("layer.weight", torch.ones(2).as_subclass(OnCuda))}
    normal = NormalGraph(torch.fx.GraphModule({}, graph), weights if place == "a weight" else {}, ())
    leaf = torch.ones(2) if place == "a weight" else torch.ones(2).as_subclass(OnCuda)
    source = Source("model", normal, (leaf,), ("[0][0]",), Structure(Leaf(0), ("",)))
    target = HostTarget()
    with pytest.raises(CompileError) as caught:
        build_program(source, target, target.make_options({}))
    named = "layer.weight" if place == "a weight" else "[0][0]"
    assert caught.value.what == f"{named} is on cuda:0, and the target host takes CPU tensors only"
    assert caught.value.remedy == "move the model and its inputs to the CPU, with .cpu()"

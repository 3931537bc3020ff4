"""The options that keep ops on the host."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import torchport
from compiler.graphs import plan
from torchport import targets
from torchport.compiler.normalise import NormalGraph
from torchport.compiler.plan import Planner

X = torch.ones(2, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return torch.softmax(self.layer2(self.layer(x)), -1)


def stayed(**options):
    return [(row.op, row.module_path) for row in plan(Net(), X, target="openvino", **options).coverage.stayed]


@pytest.mark.parametrize("name", ["aten.relu.default", "aten.relu"])
def test_an_op_is_kept_by_name_with_or_without_its_overload(name):
    assert stayed(keep_ops=[name]) == [("aten.relu.default", "layer.1"), ("aten.relu.default", "layer2.1")]


def test_a_module_is_kept_with_all_in_it_and_its_namesakes_are_not():
    assert [path for _, path in stayed(keep_modules=["layer"])] == ["layer.0", "layer.1"]
    assert [path for _, path in stayed(keep_modules=["layer2.0"])] == ["layer2.0"]


def test_the_reason_names_the_option():
    [row, _] = plan(Net(), X, target="openvino", keep_modules=["layer"]).coverage.stayed
    assert (row.reason, row.detail) == ("kept_by_option", "the option keep_modules names layer")
    assert row.remedy


def test_small_islands_are_kept():
    options = {"keep_ops": ["aten.linear"], "min_island_size": 2}
    rows = plan(Net(), X, target="openvino", **options).coverage
    assert [island.ops for island in rows.islands] == [2]  # the last relu and softmax
    assert [row.reason for row in rows.stayed].count("island_too_small") == 1


@pytest.mark.parametrize(
    "options",
    [
        {"keep_ops": ["aten.relu"]},
        {"keep_modules": ["layer"]},
        {"min_island_size": 100},
        {"keep_ops": ["aten.relu", "aten.linear", "aten.softmax"]},
    ],
)
def test_the_results_are_the_same_whatever_is_kept(options, target):
    model, x = Net().eval(), torch.randn(2, 4)
    compiled = torchport.compile(model, (x,), target=target, options=options)
    torch.testing.assert_close(compiled(x), model(x).detach())


def test_views_that_are_results_are_made_on_the_host_and_counted_apart():
    coverage = plan(lambda x: (x.view(-1), x + 1), X, target="openvino").coverage
    assert coverage.ops_remain == 0
    assert coverage.complete
    [row] = coverage.host_views
    assert row.reason == "alias"
    assert "shares memory with an input" in row.detail
    assert row.remedy == "return a copy of it, with .clone()"


def test_an_op_on_another_device_stays_with_the_remedy():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    moved = graph.call_function(torch.ops.aten._to_copy.default, (x,), {"device": torch.device("cuda")})
    graph.output((graph.call_function(torch.ops.aten.relu.default, (moved,)),))
    mode = FakeTensorMode()
    for node in graph.nodes:
        where = "cpu" if node is x else "cuda:0"
        node.meta["val"] = FakeTensor(mode, torch.empty(2, device="meta"), torch.device(where))
    target = targets.find("host")
    normal = NormalGraph(torch.fx.GraphModule({}, graph), {}, ())
    coverage = Planner("model", normal, target, target.make_options({})).plan().coverage
    assert [(row.op, row.reason, row.detail, row.remedy) for row in coverage.stayed] == [
        (op, "argument", "a tensor is on cuda:0", "move the model to the CPU")
        for op in ("aten._to_copy.default", "aten.relu.default")
    ]

"""The normalized graph that targets see."""

import pytest
import torch
from torch import nn

import torchport
from compiler.graphs import normal, ops


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("scale", torch.tensor([2.0]))
        self.plain = torch.tensor([3.0])

    def forward(self, x):
        return self.inner(x) * self.scale + self.plain


def test_weights_are_attributes_with_the_user_s_names():
    model = Net()
    graph = normal(model, torch.ones(1, 2))
    held = {weight.name: weight.tensor for weight in graph.weights.values()}
    assert {"inner.weight", "inner.bias", "scale", "plain"} == set(held)
    assert held["inner.weight"] is model.inner.weight
    placeholders = [node for node in graph.graph_module.graph.nodes if node.op == "placeholder"]
    assert len(placeholders) == 1


def test_tied_weights_are_one():
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    model, x = nn.Sequential(first, second).eval(), torch.ones(1, 2)
    assert len(normal(model, x).weights) == 1
    torch.testing.assert_close(torchport.compile(model, (x,), target="host")(x), model(x).detach())


def test_writes_come_before_results():
    def model(x):
        x.add_(1)
        return x * 2

    graph = normal(model, torch.ones(2))
    assert [node.op for node in graph.writes] == ["placeholder"]
    assert len(graph.written) == len(graph.returned) == 1


def test_composites_that_the_target_keeps_stay_whole_and_others_do_not():
    x = torch.ones(1, 2)
    assert "aten.linear.default" in ops(normal(nn.Linear(2, 2), x, target="openvino").graph_module.graph)
    assert "aten.linear.default" not in ops(normal(nn.Linear(2, 2), x, target="host").graph_module.graph)


def test_ops_that_compute_nothing_are_dropped():
    assert ops(normal(lambda x: x.detach() + 1, torch.ones(2)).graph_module.graph) == ["aten.add.Tensor"]


def test_an_empty_start_of_a_cache_is_dropped():
    def model(x):
        return torch.cat([torch.empty(0), x * 2])

    graph = normal(model, torch.ones(2)).graph_module.graph
    assert ops(graph)[-1] == "aten.clone.default"
    assert torchport.compile(model, (torch.ones(2),), target="host")(torch.ones(2)).tolist() == [2.0, 2.0]


def test_an_op_that_checks_what_it_did_keeps_its_check(target):
    compiled = torchport.compile(torch.linalg.inv, (torch.eye(2) * 2,), target=target)
    torch.testing.assert_close(compiled(torch.eye(2) * 4), torch.eye(2) / 4)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        compiled(torch.zeros(2, 2))

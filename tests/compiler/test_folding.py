"""Constant folding: ops that depend on no input are evaluated once."""

import torch
import torch.nn.functional as F
from torch import nn

import torchport
from compiler.graphs import normal, ops
from torchport.compiler import folding
from torchport.compiler.folding import fold


def folded(function, *args):
    graph = normal(function, *args)
    count = fold(graph)
    return count, ops(graph.graph_module.graph), graph.graph_module


def test_positions_and_masks_become_constants():
    def model(x):
        places = torch.arange(4)
        return x.masked_fill(places[None] > places[:, None], -1.0)

    count, left, module = folded(model, torch.zeros(4, 4))
    assert left == ["aten.where.self"] or left == ["aten.masked_fill.Scalar"]
    assert count >= 3
    x = torch.zeros(4, 4)
    torch.testing.assert_close(module(x)[0], model(x))


def test_what_comes_in_or_is_random_is_not_folded():
    assert folded(lambda x: x + 1, torch.ones(2))[0] == 0
    _, left, _ = folded(lambda x: x + torch.rand(2), torch.ones(2))
    assert "aten.rand.default" in left


def test_parameters_are_left_to_the_device():
    linear = nn.Linear(3, 3, bias=False)
    _, left, _ = folded(linear, torch.ones(1, 3))
    assert "aten.permute.default" in left or "aten.linear.default" in left


def test_a_buffer_that_the_model_writes_is_not_folded():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            return x + self.count * 2

    _, left, _ = folded(Counter(), torch.ones(1))
    assert left.count("aten.add.Tensor") == 2
    assert "aten.mul.Tensor" in left


def test_an_op_that_raises_is_left_to_raise_when_it_is_called():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.zeros(2, 3))
            self.register_buffer("places", torch.tensor([5]))

        def forward(self, x):
            return x + F.embedding(self.places, self.table)

    count, left, _ = folded(Model(), torch.ones(3))
    assert count == 0
    assert left == ["aten.embedding.default", "aten.add.Tensor"]


def test_large_results_are_not_stored(monkeypatch):
    def model(x):
        return x + torch.ones(1).expand(64, 64)

    assert "aten.expand.default" not in folded(model, torch.ones(64, 64))[1]
    monkeypatch.setattr(folding, "_LARGEST", 1000)
    assert "aten.expand.default" in folded(model, torch.ones(64, 64))[1]


def test_as_many_as_the_constants_say_is_not_folded():
    def model(x):
        return x.repeat_interleave(torch.tensor([1, 2, 0]), 0)

    x = torch.arange(12.0).reshape(3, 4)
    compiled = torchport.compile(model, (x,), target="host", options={"cache": False})
    torch.testing.assert_close(compiled(x), model(x))

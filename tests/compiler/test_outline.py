"""Islands are extracted from a graph, and the host's graph calls them."""

import operator

import torch
from torch import nn

import torchport
from compiler.graphs import plan
from torchport.compiler.outline import spec_of

X = torch.ones(2, 3)


def host_graph(function, *args, **options):
    return torchport.compile(function, args, target="host", options=options)._first.program.graph_module.graph


def test_an_island_has_its_inputs_first_its_weights_as_attributes_and_one_tuple_out():
    model = nn.Linear(3, 2)
    [piece] = plan(model, X, target="openvino").pieces.values()
    nodes = list(piece.island.graph_module.graph.nodes)
    assert [node.op for node in nodes] == ["placeholder", "get_attr", "get_attr", "call_function", "output"]
    assert [str(spec) for spec in (*piece.island.inputs, *piece.island.outputs)] == [
        "float32[2, 3]",
        "float32[2, 2]",
    ]
    torch.testing.assert_close(piece.island.graph_module(X)[0], model(X))


def test_only_what_somebody_else_reads_comes_out():
    [piece] = plan(lambda x: torch.relu(torch.tanh(x)) + 1, X).pieces.values()
    assert len(piece.outputs) == 1
    [piece] = plan(lambda x: ((y := torch.tanh(x)), torch.relu(y)), X).pieces.values()
    assert len(piece.outputs) == 2


def test_a_buffer_that_is_written_goes_in_as_an_input():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(1)
            return x * self.count

    [piece] = plan(Counter(), X).pieces.values()
    assert len(piece.inputs) == 2
    assert piece.frozen == []


def test_a_buffer_that_is_written_and_never_read_is_written():
    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(2, 3))

        def forward(self, x):
            self.last = torch.tanh(x)
            return x + 1

    model = Remembering()
    compiled = torchport.compile(model, (X,), target="host")
    compiled(3 * X)
    torch.testing.assert_close(model.last, torch.tanh(3 * X))


def test_each_island_is_one_call_of_the_op():
    graph = host_graph(lambda x: torch.tanh(torch.relu(x)) * 2, X, keep_ops=["aten.tanh"])
    targets = [node.target for node in graph.nodes if node.op == "call_function"]
    assert targets == [
        torch.ops.torchport.island.default, operator.getitem, torch.ops.aten.tanh.default,
        torch.ops.torchport.island.default, operator.getitem,
    ]  # fmt: skip


def test_weights_that_only_islands_need_are_not_held_twice():
    graph = host_graph(nn.Linear(3, 2), X)
    assert [node.target for node in graph.nodes if node.op == "get_attr"] == ["island_0"]


def test_writes_come_last():
    def model(x):
        x.mul_(2)
        return torch.tanh(x)

    names = [str(node.target) for node in host_graph(model, X).nodes if node.op == "call_function"]
    assert names[-1] == "aten.copy_.default"
    assert names.count("aten.copy_.default") == 1


def test_a_spec_tells_the_order_in_memory():
    image = torch.ones(2, 3, 4, 5)
    assert spec_of(image).order == ()
    assert spec_of(image.to(memory_format=torch.channels_last)).order == (0, 2, 3, 1)
    assert spec_of(torch.ones(2, 3).t()).order == (1, 0)
    assert spec_of(torch.ones(1, 3).expand(2, 3)).order == ()

"""Running a graph node by node leaves no trace in what another thread captures meanwhile."""

from pathlib import Path

import torch
from torch import fx, nn

import torchport
from torchport.targets.node_by_node import NodeByNode

SOURCE = Path(torchport.__file__).parent
CAPTURED = {"compiler/inference_graph.py", "compiler/training_graph.py"}  # their runs are themselves captured


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)

    def forward(self, x):
        return self.linear(x).relu().sum(1)


def test_it_computes_what_the_graph_does():
    graph_module, x = fx.symbolic_trace(Model()), torch.randn(4, 2)
    torch.testing.assert_close(NodeByNode(graph_module).run(x), graph_module(x))


def test_nothing_is_noted_of_the_node_that_runs():
    graph_module = fx.symbolic_trace(Model())
    for node in graph_module.graph.nodes:
        node.meta["custom"] = {"of": "this run"}
    seen = []

    class Looks(NodeByNode):
        def call_method(self, target, args, kwargs):
            seen.append(dict(torch.fx.traceback.get_current_meta()))
            return super().call_method(target, args, kwargs)

    with torch.fx.traceback.preserve_node_meta():
        Looks(graph_module).run(torch.randn(4, 2))
    assert seen == [{}, {}]


def test_what_runs_graphs_is_this_unless_the_run_is_captured():
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py*")
        if path.suffix in (".py", ".template") and "fx.Interpreter" in path.read_text()
    }
    assert users == CAPTURED | {"targets/node_by_node.py"}

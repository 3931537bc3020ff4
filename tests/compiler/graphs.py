"""Graphs for the tests of the compiler."""

import torch
from torch import fx

from torchport import capture
from torchport.compiler.normalise import normalise
from torchport.compiler.plan import Planner
from torchport.records import SUPPORTED, Verdict
from torchport.targets import find

aten = torch.ops.aten
HOST = Verdict(False, "no_lowering", "the test says so")


def normal(function, *args, target="host", **kwargs):
    """Capture a function and return its normalized graph."""
    return normalise(capture.export(function, args, kwargs), find(target))


def plan(function, *args, target="host", **options):
    """Plan a function for a target."""
    found = find(target)
    return Planner("model", normal(function, *args, target=target), found, found.make_options(options)).plan()


def ops(graph):
    """Return the names of a graph's ops, in order."""
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


class Drawing:
    """A graph built by hand: `drawing.device("b", a)` adds an op that the device takes."""

    def __init__(self):
        self.graph = fx.Graph()
        self.verdicts = {}

    def input(self, name):
        return self.graph.placeholder(name)

    def device(self, name, *sources):
        return self._add(name, aten.relu.default, sources, SUPPORTED)

    def host(self, name, *sources, op=aten.relu.default):
        return self._add(name, op, sources, HOST)

    def _add(self, name, op, sources, verdict):
        node = self.graph.create_node("call_function", op, sources, name=name)
        self.verdicts[node] = verdict
        return node

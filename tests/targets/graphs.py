"""Graphs for target tests: built by hand, or captured from a function."""

import torch
from torch import fx

from torchport import capture
from torchport.compiler.folding import fold
from torchport.compiler.normalise import normalise
from torchport.records import TensorSpec
from torchport.targets import Island, find

aten = torch.ops.aten


class HandMade:
    """Builds a graph node by node; each node's fake value is computed on meta tensors."""

    def __init__(self):
        self.graph = fx.Graph()
        self.weights = {}

    def input(self, *shape, dtype=torch.int64):
        node = self.graph.placeholder(f"input_{len(self.graph.nodes)}")
        node.meta["val"] = torch.empty(shape, dtype=dtype, device="meta")
        return node

    def weight(self, tensor):
        name = f"weight_{len(self.weights)}"
        self.weights[name] = tensor
        node = self.graph.create_node("get_attr", name)
        node.meta["val"] = tensor.to("meta")
        return node

    def call(self, op, *args, **kwargs):
        node = self.graph.call_function(op, args, kwargs)
        values = fx.map_arg((args, kwargs), lambda source: source.meta["val"])
        node.meta["val"] = op(*values[0], **values[1])
        return node

    def module(self, *outputs):
        self.graph.output(tuple(outputs))
        return fx.GraphModule(self.weights, self.graph)


def planned(function, *args, target="openvino", **kwargs):
    """Return the graph of a function as a target's verdicts see it."""
    found = find(target)
    graph = normalise(capture.export(function, args, kwargs), found)
    fold(graph)
    found.prepare(graph.graph_module)
    return graph.graph_module.graph


def verdict_on(op, function, *args, target="openvino", **kwargs):
    """Return the target's verdict on the only call of an op in a function."""
    found = find(target)
    [node] = [
        node for node in planned(function, *args, target=target, **kwargs).nodes if str(node.target) == op
    ]
    return found.verdict(node, found.make_options({}))


def island_of(function, *args, target="openvino"):
    """Return a function as one island."""
    graph = planned(function, *args, target=target)
    weights = {
        node.target: getattr(graph.owning_module, node.target)
        for node in graph.nodes
        if node.op == "get_attr"
    }
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    outputs = graph.output_node().args[0]
    return Island("island", fx.GraphModule(weights, graph), specs(inputs), specs(outputs))


def specs(nodes):
    values = [node.meta["val"] for node in nodes]
    return tuple(TensorSpec(tuple(value.shape), str(value.dtype).removeprefix("torch.")) for value in values)

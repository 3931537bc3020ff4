"""The JSON format of graphs: it round-trips, and none of its text becomes code."""

import json
import operator
import os

import pytest
import torch
from torch import fx

from torchport.errors import TargetError
from torchport.targets.graph_json import decode_graph, encode_graph

aten = torch.ops.aten
X = torch.tensor([[1.0, -2.0], [3.0, -4.0]])


def example():
    """A graph with an attribute, keywords, a result of several tensors, and names as users may choose."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    weight = graph.create_node("get_attr", "layer_weight")
    product = graph.call_function(aten.mm.default, (x, weight))
    wide = graph.call_function(aten._to_copy.default, (product,), {"dtype": torch.float64})
    parts = graph.call_function(aten.split.Tensor, (wide, 1))
    first = graph.call_function(operator.getitem, (parts, 0))
    limited = graph.call_function(aten.clamp.default, (first,), {"min": float("-inf"), "max": 1.5})
    graph.output((limited, x, weight))
    return fx.GraphModule({"layer_weight": torch.eye(2)}, graph)


def test_a_graph_survives():
    module = example()
    data = json.loads(json.dumps(encode_graph(module.graph)))
    read = decode_graph(data, {"layer_weight": module.layer_weight})
    for ours, expected in zip(read(X), module(X), strict=True):
        assert torch.equal(ours, expected)
        assert ours.dtype == expected.dtype
    assert json.loads(json.dumps(encode_graph(read.graph)))["calls"] == data["calls"]


CODE = 'x=__import__("os").environ.__setitem__("TORCHPORT_WAS_HERE","1")'


def hostile(change):
    data = json.loads(json.dumps(encode_graph(example().graph)))
    change(data)
    return data


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(tensors=[CODE]),
        lambda data: data["calls"][0].update(op=CODE),
        lambda data: data["calls"][1]["kwargs"].update({CODE: 1}),
        lambda data: data["calls"][1]["kwargs"].update({"dtype": CODE}),
        lambda data: data["calls"][0]["args"].__setitem__(0, {"node": CODE}),
        lambda data: data["calls"][0]["args"].__setitem__(0, {"value": CODE}),
        lambda data: data["calls"][0].update(name=CODE, target=CODE),
        lambda data: data.update(inputs=[CODE]),
        lambda data: data["outputs"].append(CODE),
        lambda data: data["calls"][3].update(args=[{"value": 4}, CODE]),
    ],
)
def test_no_text_becomes_code(change):
    tensors = {"layer_weight": torch.eye(2), CODE: torch.eye(2)}
    try:
        read = decode_graph(hostile(change), tensors)
    except TargetError:
        pass
    else:
        assert CODE not in read.code
        read(X)
    assert "TORCHPORT_WAS_HERE" not in os.environ


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["calls"][0].update(op="aten.relu_.default"), "writes to its arguments"),
        (lambda data: data["calls"][0].update(op="aten.copy_.default"), "writes to its arguments"),
        (lambda data: data["calls"][0].update(op="torchport.island.default"), "not from torch"),
        (lambda data: data["calls"][0]["args"].__setitem__(0, {"value": 2}), "not computed before"),
        (lambda data: data["calls"][0]["args"].__setitem__(0, {"value": -1}), "not computed before"),
        (lambda data: data["calls"][0]["args"].__setitem__(0, {"value": 1e3}), "is malformed"),
        (lambda data: data["calls"][1]["kwargs"].update(dtype=-2), "for its argument 'dtype'"),
        (lambda data: data["calls"][1]["kwargs"].update(dtype={"dtype": "quint8"}), "not a dtype"),
        (lambda data: data["calls"][1]["kwargs"].update(device={"device": "meta"}), "is malformed"),
        (lambda data: data["calls"][1]["kwargs"].update(layout={"layout": "sparse_coo"}), "is malformed"),
        (lambda data: data["calls"][0]["args"].append(1), "does not take"),
        (lambda data: data["calls"][0]["args"].pop(), "without its argument 'mat2'"),
        (lambda data: data["calls"][3].update(args=[{"value": 0}, 0]), "getitem takes"),
        (lambda data: data["calls"][3].update(op="size.mul"), "only sizes and numbers"),
        (lambda data: data.update(inputs=2**40), "how many inputs"),
        (lambda data: data.update(calls={}), "no list of"),
        (lambda data: data["outputs"].append([{"value": 0}]), "not a value"),
        (lambda data: data["calls"][0]["args"].__setitem__(0, [[1]]), "is malformed"),
        (lambda data: data["calls"][0]["args"].__setitem__(0, [1] * 10**6), "list of 1000000 items"),
    ],
)
def test_graphs_that_nobody_wrote_are_refused(change, message):
    with pytest.raises(TargetError, match=message):
        decode_graph(hostile(change), {"layer_weight": torch.eye(2)})


def test_a_host_graph_writes_its_inputs_and_buffers_alone():
    write = {"op": "aten.copy_.default", "args": [{"value": 0}, {"value": 1}], "kwargs": {}}
    data = {"inputs": 1, "tensors": ["t"], "calls": [write], "outputs": [{"value": 2}]}
    x = torch.zeros(2)
    decode_graph(data, {"t": torch.ones(2)}, of_host=True)(x)
    assert torch.equal(x, torch.ones(2))
    copy = {"op": "aten.relu.default", "args": [{"value": 0}], "kwargs": {}}
    data.update(calls=[copy, {**write, "args": [{"value": 2}, {"value": 1}]}])
    with pytest.raises(TargetError, match="only write to an input or buffer"):
        decode_graph(data, {"t": torch.ones(2)}, of_host=True)

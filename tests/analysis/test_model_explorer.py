"""Files for Model Explorer: nodes in their modules' namespaces, edges, and costs as node data."""

import json

import pytest
import torch
from torch import nn

import torchport
from torchport.analysis import export_model_explorer
from torchport.errors import RecordError


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        y = x * 2
        return self.block(y) + y


@pytest.fixture
def files(tmp_path):
    analysis = torchport.analyze(Residual(), (torch.ones(2, 4),), name="residual")
    paths = export_model_explorer(analysis, tmp_path / "net.json")
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()}
    return {path.name: json.loads(path.read_text()) for path in paths}


def test_the_graph(files):
    collection = files["net.json"]
    assert collection["label"] == "residual"
    [graph] = collection["graphs"]
    nodes = [(node["id"], node["label"], node["namespace"]) for node in graph["nodes"]]
    assert nodes == [
        ("0", "torch.mul", ""),
        ("1", "torch.nn.functional.linear", "block/0"),
        ("2", "torch.relu", "block/1"),
        ("3", "torch.add", ""),
    ]
    edges = {node["id"]: [edge["sourceNodeId"] for edge in node["incomingEdges"]] for node in graph["nodes"]}
    assert edges == {"0": [], "1": ["0"], "2": ["1"], "3": ["2", "0"]}
    assert graph["groupNodeAttributes"]["block"]["flops"] == f"{2 * 2 * 4 * 4}"


def test_every_value_is_text_and_shapes_are_shown(files):
    linear = files["net.json"]["graphs"][0]["nodes"][1]
    assert all(isinstance(entry["value"], str) for entry in linear["attrs"])
    [output] = linear["outputsMetadata"]
    assert {entry["key"]: entry["value"] for entry in output["attrs"]}["shape"] == "2x4"
    assert len(linear["inputsMetadata"]) == 3


def test_costs_are_node_data_of_the_same_graph_and_nodes(files):
    graph = files["net.json"]["graphs"][0]
    data = files["net.flops.json"]
    assert list(data) == [graph["id"]]
    results = data[graph["id"]]["results"]
    assert set(results) == {node["id"] for node in graph["nodes"]}
    assert results["1"] == {"value": 2 * 2 * 4 * 4}
    assert files["net.bytes_written.json"][graph["id"]]["results"]["0"] == {"value": 2 * 4 * 4}


def test_a_place_that_cannot_be_written(tmp_path):
    analysis = torchport.analyze(nn.ReLU(), (torch.ones(2),))
    (tmp_path / "net.flops.json").mkdir()
    with pytest.raises(RecordError, match="cannot be written"):
        export_model_explorer(analysis, tmp_path / "net.json")
    assert [path.name for path in tmp_path.iterdir()] == ["net.flops.json"]

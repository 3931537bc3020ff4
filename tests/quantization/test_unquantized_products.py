"""How products that nncf leaves in floats are quantized."""

import pytest
import torch
from torch import nn

from torchport.quantization.calibration import CalibrationData
from torchport.quantization.decisions import Decisions, Edge, Quantizer
from torchport.quantization.options import QuantizationOptions
from torchport.quantization.unquantized_products import round_left_products


class Data(CalibrationData):
    """Two items whose maxima average 4, and whose minima average -3."""

    def __init__(self):
        self.items = [torch.tensor([[-2.0, 3.0]]), torch.tensor([[-4.0, 5.0]])]
        self.calibrating = [0, 1]

    def like_first(self, indices):
        return list(indices)

    def load(self, index):
        return [self.items[index]]


@pytest.mark.parametrize(
    ("activations", "relu", "expected"),
    [
        ("auto", False, (4 / 127, 0, -128, 127)),
        ("asymmetric", False, (7 / 255, round(3 * 255 / 7), 0, 255)),
        ("auto", True, (4 / 255, 0, 0, 255)),
    ],
)
def test_ranges_are_those_of_the_data(activations, relu, expected):
    module = nn.Sequential(nn.ReLU() if relu else nn.Identity(), nn.Linear(2, 3)).eval()
    module[1].weight.data = torch.tensor([[127.0, -1.0], [0.5, 0.25], [0.0, 0.0]])
    graph = torch.fx.GraphModule(module, _drawn(relu))
    decisions = Decisions()
    round_left_products(
        graph, Data(), QuantizationOptions(activations=activations, range_reduction="no"), decisions
    )
    [(_, edge)] = decisions.edges.items()
    scale, *rest = expected
    assert edge.quantizer.scale == pytest.approx(scale)
    assert [edge.quantizer.zero_point, edge.quantizer.low, edge.quantizer.high] == rest
    [(_, weight)] = decisions.weights.items()
    assert weight.values.tolist() == [[127, -1], [127, 64], [0, 0]]


@pytest.mark.parametrize(("ranges", "largest"), [("mean_min_max", 4), ("min_max", 5), ("histogram", None)])
def test_ranges_are_found_as_the_options_say_or_not_at_all(ranges, largest):
    graph = torch.fx.GraphModule(nn.Sequential(nn.Identity(), nn.Linear(2, 3)), _drawn(relu=False))
    decisions = Decisions()
    round_left_products(graph, Data(), QuantizationOptions(ranges=ranges), decisions)
    scales = [edge.quantizer.scale for edge in decisions.edges.values()]
    assert scales == ([] if largest is None else [pytest.approx(largest / 127)])


def test_what_is_decided_stays():
    decisions = Decisions(edges={("linear", 0): Edge(Quantizer("x", 0.5, 0, 0, 255))})
    graph = torch.fx.GraphModule(nn.Sequential(nn.Identity(), nn.Linear(2, 3)), _drawn(relu=False))
    round_left_products(graph, Data(), QuantizationOptions(), decisions)
    assert decisions.weights == {}
    assert decisions.edges["linear", 0].quantizer.scale == 0.5


def _drawn(relu):
    """Return the graph of a linear layer, optionally after a ReLU."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    weight, bias = graph.get_attr("1.weight"), graph.get_attr("1.bias")
    if relu:
        x = graph.call_function(torch.ops.aten.relu.default, (x,))
    graph.output(graph.call_function(torch.ops.aten.linear.default, (x, weight, bias)))
    for node in graph.nodes:
        if node.op == "call_function" and "linear" in str(node.target):
            node.name = "linear"
    return graph

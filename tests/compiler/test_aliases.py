"""Results that alias an input, a weight or another result stay on the host."""

import pytest
import torch

from compiler.graphs import normal, ops
from torchport.compiler.aliases import aliasing_nodes

MATRIX = torch.ones(2, 2)
WEIGHT = torch.nn.Parameter(torch.ones(2, 2), requires_grad=False)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = WEIGHT

    def forward(self, x):
        return x @ self.weight, self.weight.permute(1, 0)


def shared(function, *args):
    """Return the ops whose results share memory, and with what."""
    graph = normal(function, *args, target="openvino")
    return {str(node.target): what for node, what in aliasing_nodes(graph).items()}


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: x.view(4), "aten.view.default"),
        (lambda x: x[0], "aten.select.int"),
        (lambda x: x.permute(1, 0), "aten.permute.default"),
        (lambda x: x.expand(3, 2, 2), "aten.expand.default"),
        (lambda x: x.diagonal(), "aten.diagonal.default"),
        (lambda x: x.split(1)[1], "aten.split.Tensor"),
        (lambda x: x.unbind()[0], "aten.unbind.int"),
        (lambda x: x.chunk(2, 1)[1], "aten.split.Tensor"),
    ],
)
def test_a_view_of_an_input_is_found_whatever_makes_it(function, op):
    assert shared(function, MATRIX).get(op) == "an input"


def test_all_steps_to_a_view_are_found():
    found = shared(lambda x: x.view(4)[1:].unsqueeze(0), MATRIX)
    assert found == dict.fromkeys(
        ["aten.view.default", "aten.slice.Tensor", "aten.unsqueeze.default"], "an input"
    )


def test_views_of_weights_and_of_other_results_are_found():
    assert shared(Tied(), MATRIX) == {"aten.permute.default": "a weight"}
    assert shared(lambda x: ((y := x + 1), y.view(4)), MATRIX) == {"aten.view.default": "another result"}


@pytest.mark.parametrize(
    "function", [lambda x: (x + 1).view(4), lambda x: x.t() + 1, lambda x: x.view(4).clone(), lambda x: x * 2]
)
def test_what_has_memory_of_its_own_may_go(function):
    assert shared(function, MATRIX) == {}


def test_the_graph_holds_what_was_asked_for():
    assert ops(normal(lambda x: x.view(4), MATRIX).graph_module.graph) == ["aten.view.default"]


def test_a_result_that_is_of_nothing_but_a_computed_tensor_is_computed():
    graph = normal(lambda x: ((x + 1).detach(), (x * 2).permute(1, 0).detach()), MATRIX, target="openvino")
    assert aliasing_nodes(graph) == {}
    assert "aten.detach.default" not in ops(graph.graph_module.graph)
    assert "aten.alias.default" not in ops(graph.graph_module.graph)


def test_results_of_one_computed_tensor_share_its_memory():
    def function(x):
        made = x + 1
        return made.detach(), made.view(2, 2).detach()

    assert "another result" in shared(function, MATRIX).values()

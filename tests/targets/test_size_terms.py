"""Sizes as data: their values for given tensors, and the same computed in a graph."""

import pytest
import torch
from torch import fx

from torchport.targets.open_sizes import OUTPUT_SIZES, output_shapes
from torchport.targets.size_terms import add_to_graph, evaluate, is_size, operations_of

TERMS = {
    "size": (["size", 0, 1], 4),
    "arithmetic": (["-", ["*", ["size", 0, 0], ["+", ["size", 1, 0], 1]], 2], 25),
    "quotient": (["//", ["size", 1, 0], ["size", 0, 0]], 2),
    "rest": (["%", ["size", 1, 0], 3], 2),
    "extremes": (["max", ["min", ["size", 0, 0], 2], 1], 2),
}
X, Y = torch.zeros(3, 4), torch.zeros(8)


@pytest.mark.parametrize("name", TERMS)
def test_a_graph_computes_what_a_term_says(name):
    term, expected = TERMS[name]
    assert evaluate(term, [X.shape, Y.shape]) == expected
    graph = fx.Graph()
    inputs = [graph.placeholder("x"), graph.placeholder("y")]
    for node, tensor in zip(inputs, (X, Y), strict=True):
        node.meta["val"] = tensor
    made = {}
    node = add_to_graph(graph, term, inputs, made)
    assert is_size(node)
    assert add_to_graph(graph, term, inputs, made) is node
    graph.output(node)
    assert fx.GraphModule({}, graph)(X, Y) == expected


def test_a_number_is_no_node():
    assert add_to_graph(fx.Graph(), 7, [], {}) == 7


def test_the_operations_of_a_term():
    assert operations_of(["-", ["*", ["size", 0, 0], 2], ["max", 1, 2]]) == {"-", "*", "max"}


@pytest.mark.parametrize("term", ["1", [], ["exec", 1], [["size", 0, 0]], None, {"size": 1}])
def test_what_is_not_a_term_is_refused(term):
    with pytest.raises((ValueError, TypeError)):
        evaluate(term, [X.shape])


def test_the_shapes_of_outputs():
    sizes = {OUTPUT_SIZES: [[["size", 0, 0], 2], [["*", ["size", 0, 1], 3]]]}
    assert output_shapes(sizes, [X.shape]) == [(3, 2), (12,)]
    assert output_shapes({}, [X.shape]) is None
    with pytest.raises(ValueError, match="not a list of lists"):
        output_shapes({OUTPUT_SIZES: [3]}, [X.shape])

"""Islands: as large as possible, convex, and in an order that preserves that of random ops."""

import operator
import random

import pytest
import torch

from compiler.graphs import Drawing, aten
from torchport.compiler.partition import partition


def islands(drawing, min_size=1):
    cut = partition(drawing.graph, drawing.verdicts, min_size)
    return [{node.name for node in nodes} for _, nodes in sorted(cut.islands.items())]


def test_what_the_device_takes_whole_is_one_island():
    drawing = Drawing()
    a = drawing.device("a", drawing.input("x"))
    drawing.device("c", drawing.device("b", a), a)
    assert islands(drawing) == [{"a", "b", "c"}]


def test_separate_branches_are_one_island():
    drawing = Drawing()
    drawing.device("a", drawing.input("x"))
    drawing.device("b", drawing.input("y"))
    assert islands(drawing) == [{"a", "b"}]


def test_a_diamond_with_the_host_on_one_side_is_cut():
    #     a
    #    / \\        one island of a and c would need h, which needs a
    #   h   |
    #    \\ /
    #     c
    drawing = Drawing()
    a = drawing.device("a", drawing.input("x"))
    drawing.device("c", drawing.host("h", a), a)
    assert islands(drawing) == [{"a"}, {"c"}]


def test_a_side_branch_joins_the_earliest_island_it_can():
    drawing = Drawing()
    a = drawing.device("a", drawing.input("x"))
    side = drawing.device("side", a)
    drawing.device("c", drawing.host("h", a), side)
    assert islands(drawing) == [{"a", "side"}, {"c"}]


def test_two_host_ops_in_a_row_cost_one_crossing():
    drawing = Drawing()
    a = drawing.device("a", drawing.input("x"))
    drawing.device("b", drawing.host("h2", drawing.host("h1", a)))
    assert islands(drawing) == [{"a"}, {"b"}]


@pytest.mark.parametrize("seed", range(30))
def test_any_graph_runs_in_the_order_of_its_levels(seed):
    draw = random.Random(seed)
    drawing = Drawing()
    nodes = [drawing.input("x")]
    for index in range(25):
        sources = draw.sample(nodes, min(len(nodes), draw.randint(1, 3)))
        add = drawing.device if draw.random() < 0.6 else drawing.host
        nodes.append(add(f"n{index}", *sources))
    min_size = draw.choice([1, 2, 3])
    cut = partition(drawing.graph, drawing.verdicts, min_size)
    assert all(len(nodes) >= min_size for nodes in cut.islands.values())
    ready = {nodes[0]}
    for level in cut.levels:
        island = cut.islands.get(level, [])
        # All inputs of an island are computed before it starts: that is what convex means.
        assert all(source in ready or source in island for node in island for source in node.args)
        ready.update(island)
        for node in cut.host.get(level, []):
            assert set(node.args) <= ready
            ready.add(node)
    assert ready == set(nodes)


class TestSmallIslands:
    def test_they_go_to_the_host_with_a_reason(self):
        drawing = Drawing()
        a = drawing.device("a", drawing.input("x"))
        b = drawing.device("b", drawing.host("h", drawing.device("a2", a)))
        assert islands(drawing, min_size=2) == [{"a", "a2"}]
        assert drawing.verdicts[b].reason == "island_too_small"
        assert drawing.verdicts[b].remedy == "lower min_island_size"

    def test_a_look_into_a_tuple_does_not_count(self):
        drawing = Drawing()
        pair = drawing.device("pair", drawing.input("x"))
        drawing.graph.create_node("call_function", operator.getitem, (pair, 0), name="first")
        assert islands(drawing, min_size=2) == []


def test_a_look_into_a_tuple_stays_with_the_tuple():
    drawing = Drawing()
    pair = drawing.host("pair", drawing.input("x"))
    look = drawing.graph.create_node("call_function", operator.getitem, (pair, 0), name="look")
    drawing.device("after", look)
    cut = partition(drawing.graph, drawing.verdicts)
    assert [node.name for node in cut.host[0]] == ["pair", "look"]


def test_random_ops_run_in_the_order_in_which_they_were_traced():
    # By its inputs alone, the second draw could run before the first, which waits for an island.
    drawing = Drawing()
    x = drawing.input("x")
    late = drawing.host("h", drawing.device("a", x))
    drawing.host("first_draw", drawing.device("b", late), op=aten.bernoulli.default)
    second = drawing.host("second_draw", x, op=aten.bernoulli.default)
    drawing.device("after", second)
    cut = partition(drawing.graph, drawing.verdicts)
    order = [node.name for level in cut.levels for node in cut.host.get(level, [])]
    assert order.index("first_draw") < order.index("second_draw")
    assert torch.Tag.nondeterministic_seeded in aten.bernoulli.default.tags

"""Bounds of integers, on graphs built by hand; the bounds must hold for what eager torch computes."""

import operator

import pytest
import torch

from targets.graphs import HandMade, aten
from torchport.targets import find
from torchport.targets.integer_bounds import bounds_of, integers
from torchport.targets.value_ranges import ASSUMED, annotate, fits, index_limits, input_ranges

UNKNOWN = (-(2**63), 2**63 - 1)
LOW, HIGH = -5, 9
EXACT = (-(2**31) + 1, 2**31 - 1)


def is_input(node):
    return node.op == "placeholder"


def bounds(op, *args, **kwargs):
    """Return the bounds of an op on integers between -5 and 9, given as frozen weights."""
    graph = HandMade()
    result = graph.call(op, *[_node(graph, item) for item in args], **kwargs)
    annotate(graph.module(result), is_input)
    return bounds_of(result)


def _node(graph, value):
    if isinstance(value, torch.Tensor):
        return graph.weight(value)
    return [_node(graph, item) for item in value] if isinstance(value, list) else value


EDGES = torch.tensor([LOW, HIGH])


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "expected"),
    [
        (aten.add.Tensor, (EDGES, EDGES), {}, (-10, 18)),
        (aten.add.Tensor, (EDGES, EDGES), {"alpha": -2}, (-5 - 18, 9 + 10)),
        (aten.add.Tensor, (EDGES, 4), {}, (-1, 13)),
        (aten.add.Scalar, (EDGES, 3, 100), {}, (295, 309)),
        (aten.sub.Tensor, (EDGES, EDGES), {}, (-14, 14)),
        (aten.rsub.Scalar, (EDGES, 2), {}, (-7, 7)),
        (aten.rsub.Scalar, (EDGES, 2, 1000), {}, (2 - 9000, 2 + 5000)),
        (aten.rsub.Tensor, (EDGES, EDGES), {"alpha": 10}, (-5 - 90, 9 + 50)),
        (aten.mul.Tensor, (EDGES, EDGES), {}, (-45, 81)),
        (aten.mul.Tensor, (EDGES, -(2**40)), {}, (-9 * 2**40, 5 * 2**40)),
        (aten.neg.default, (EDGES,), {}, (-9, 5)),
        (aten.abs.default, (EDGES,), {}, (0, 9)),
        (aten.relu.default, (EDGES,), {}, (0, 9)),
        (aten.bitwise_not.default, (EDGES,), {}, (-10, 4)),
        (aten.sum.default, (EDGES,), {}, (-10, 18)),
        (aten.cumsum.default, (EDGES, 0), {}, (-10, 18)),
        (aten.clamp.default, (EDGES, 0), {}, (0, 9)),
        (aten.clamp.default, (EDGES, None, 3), {}, (-5, 3)),
        (aten.clamp_max.default, (EDGES, 3), {}, (-5, 3)),
        (aten.minimum.default, (EDGES, torch.tensor([2, 3])), {}, (-5, 3)),
        (aten.maximum.default, (EDGES, torch.tensor([2, 3])), {}, (2, 9)),
        (aten.where.self, (torch.tensor([True, False]), EDGES, torch.tensor([70, 80])), {}, (-5, 80)),
        (aten.masked_fill.Scalar, (EDGES, torch.tensor([True, False]), 99), {}, (-5, 99)),
        (aten.cat.default, ([EDGES, torch.tensor([70])],), {}, (-5, 70)),
        (aten.full_like.default, (EDGES, 6), {}, (6, 6)),
        (aten.constant_pad_nd.default, (EDGES, [1, 1], 50), {}, (-5, 50)),
        (aten.constant_pad_nd.default, (torch.tensor([3, 4]), [1, 1]), {}, (0, 4)),
        (aten.tril.default, (torch.tensor([[3, 4]]),), {}, (0, 4)),
        (aten._to_copy.default, (torch.tensor([True, False]),), {"dtype": torch.int64}, (0, 1)),
        (aten._to_copy.default, (torch.tensor([1.5]),), {"dtype": torch.int64}, UNKNOWN),
        (aten.view.default, (EDGES, [2, 1]), {}, (-5, 9)),
    ],
)
def test_bounds_by_hand(op, args, kwargs, expected):
    assert bounds(op, *args, **kwargs) == expected


MATRIX = torch.tensor([[LOW, HIGH, 0], [3, -1, 7]])
PLACES = torch.tensor([[0, 1, 1], [1, 0, 0]])


@pytest.mark.parametrize(
    ("op", "args", "kwargs"),
    [
        (aten.sum.dim_IntList, (MATRIX, [0]), {}),
        (aten.cumsum.default, (MATRIX, 1), {}),
        (aten.bitwise_and.Tensor, (MATRIX, MATRIX.flip(1)), {}),
        (aten.bitwise_or.Tensor, (MATRIX, MATRIX.flip(1)), {}),
        (aten.bitwise_xor.Tensor, (MATRIX, MATRIX.flip(1)), {}),
        (aten.bitwise_xor.Tensor, (torch.tensor([8, 0]), torch.tensor([7, 15])), {}),
        (aten.bitwise_or.Scalar, (MATRIX, 64), {}),
        (aten.remainder.Scalar, (MATRIX, 4), {}),
        (aten.remainder.Scalar, (MATRIX, -4), {}),
        (aten.fmod.Scalar, (MATRIX, 4), {}),
        (aten.floor_divide.default, (MATRIX, -2), {}),
        (aten.div.Tensor_mode, (MATRIX, torch.tensor([-2, 1, 3])), {"rounding_mode": "floor"}),
        (aten.div.Scalar_mode, (MATRIX, -2), {"rounding_mode": "trunc"}),
        (aten.argmax.default, (MATRIX,), {}),
        (aten.argmin.default, (MATRIX, 1), {}),
        (aten.amax.default, (MATRIX, [0]), {}),
        (aten.gather.default, (MATRIX, 0, PLACES), {}),
        (aten.index.Tensor, (MATRIX, [PLACES]), {}),
        (aten.index_select.default, (MATRIX, 0, PLACES[0]), {}),
        (aten.embedding.default, (MATRIX, PLACES), {}),
        (aten.scatter.src, (MATRIX, 0, PLACES, MATRIX * 9), {}),
        (aten.scatter.value, (MATRIX, 0, PLACES, 77), {}),
        (aten.slice_scatter.default, (MATRIX, MATRIX[:1] * 9, 0, 0, 1), {}),
        (aten.select_scatter.default, (MATRIX, MATRIX[0] * 9, 0, 0), {}),
        (aten.flip.default, (MATRIX, [0]), {}),
        (aten.repeat.default, (MATRIX, [2, 1]), {}),
        (aten.stack.default, ([MATRIX, MATRIX * 9],), {}),
        (aten.arange.start_step, (-3, 9, 2), {}),
        (aten.arange.start_step, (9, -3, -2), {}),
        (aten.clamp_min.default, (MATRIX, 4), {}),
        (aten.clamp_max.default, (MATRIX, 4), {}),
        (aten.sign.default, (MATRIX,), {}),
        (aten.ones_like.default, (MATRIX,), {}),
        (aten.zeros_like.default, (MATRIX,), {}),
        (aten.cumprod.default, (MATRIX, 1), {}),
    ],
)
def test_bounds_hold_for_what_torch_computes(op, args, kwargs):
    values = op(*args, **kwargs)
    low, high = bounds(op, *args, **kwargs)
    assert low <= values.min().item()
    assert values.max().item() <= high


def test_booleans_and_numbers_have_bounds():
    graph = HandMade()
    flag = graph.input(2, dtype=torch.bool)
    assert bounds_of(flag) == (0, 1)
    assert bounds_of(True) == (1, 1)
    assert bounds_of(-7) == (-7, -7)
    assert bounds_of(2.5) == UNKNOWN


def test_an_op_that_is_not_known_has_no_bounds():
    assert bounds(aten.cumprod.default, MATRIX, 1) == UNKNOWN


def test_each_of_several_results_has_bounds():
    graph = HandMade()
    parts = graph.call(aten.split.Tensor, graph.weight(EDGES), 1)
    part = graph.call(operator.getitem, parts, 1)
    annotate(graph.module(part), lambda node: False)
    assert bounds_of(part) == (-5, 9)


def test_an_op_has_one_row():
    with pytest.raises(ValueError, match=r"two rows for the integers of aten\.neg\.default"):
        integers("neg.default")(lambda node: (0, 0))


def test_what_fits():
    exact = find("openvino").exact_integers
    assert fits((0, 2**24), exact)
    assert not fits((0, 2**24 + 1), exact)
    assert not fits((-(2**24) - 1, 0), exact)
    assert not fits((-1, 5), (0, 5))
    assert exact[0] < ASSUMED[0] < ASSUMED[1] < exact[1]


class TestInputs:
    """The assumed bounds of integers from outside, which each call checks."""

    def test_by_default_they_are_assumed_to_be_small(self):
        graph = HandMade()
        ids = graph.input(3)
        assert self.ranges(graph, ids) == {0: ASSUMED}

    def test_floats_and_booleans_are_not_checked(self):
        graph = HandMade()
        values = [graph.input(3, dtype=dtype) for dtype in (torch.float32, torch.bool, torch.int64)]
        assert list(self.ranges(graph, *values)) == [2]

    def test_an_index_must_lie_in_its_table(self):
        graph = HandMade()
        table, ids = graph.weight(torch.zeros(10, 4)), graph.input(3)
        assert self.ranges(graph, graph.call(aten.embedding.default, table, ids)) == {0: (0, 9)}

    def test_the_smallest_of_several_tables_counts_also_through_views(self):
        graph = HandMade()
        ids = graph.input(2, 3)
        small, large = graph.weight(torch.zeros(5, 4)), graph.weight(torch.zeros(10, 4))
        flat = graph.call(aten.view.default, graph.call(aten.slice.Tensor, ids, 0, 0, 1), [3])
        outputs = [graph.call(aten.embedding.default, table, flat) for table in (large, small)]
        assert self.ranges(graph, *outputs) == {0: (0, 4)}

    def test_indexing_takes_negative_places_and_embedding_does_not(self):
        graph = HandMade()
        ids, x = graph.input(3), graph.input(7, 2, dtype=torch.float32)
        assert self.ranges(graph, graph.call(aten.index.Tensor, x, [ids])) == {0: (-7, 6)}

    @pytest.mark.parametrize(("op", "limits"), [(aten.add.Tensor, (-2, 7)), (aten.sub.Scalar, (2, 11))])
    def test_an_offset_that_is_added_to_the_index_is_undone(self, op, limits):
        graph = HandMade()
        table, places = graph.weight(torch.zeros(10, 4)), graph.input(3)
        moved = graph.call(op, graph.call(aten.view.default, places, [3, 1]), 2)
        graph.call(aten.embedding.default, table, moved)
        assert self.ranges(graph, moved) == {0: limits}
        assert bounds_of(moved) == (0, 9)

    def test_places_that_are_added_to_the_index_are_undone(self):
        graph = HandMade()
        table, start = graph.weight(torch.zeros(10, 4)), graph.input()
        moved = graph.call(aten.add.Tensor, graph.weight(torch.arange(3)), start)
        graph.call(aten.embedding.default, table, moved)
        assert self.ranges(graph, moved) == {0: (0, 7)}
        assert bounds_of(moved) == (0, 9)

    def test_places_that_do_not_fit_are_not_undone(self):
        graph = HandMade()
        table, start = graph.weight(torch.zeros(2, 4)), graph.input()
        moved = graph.call(aten.add.Tensor, graph.weight(torch.arange(3)), start)
        graph.call(aten.embedding.default, table, moved)
        assert self.ranges(graph, moved) == {0: ASSUMED}

    def test_other_arithmetic_before_the_index_is_not_undone(self):
        graph = HandMade()
        table, ids = graph.weight(torch.zeros(10, 4)), graph.input(3)
        for moved in (graph.call(aten.mul.Tensor, ids, 2), graph.call(aten.add.Tensor, ids, 1, alpha=2)):
            graph.call(aten.embedding.default, table, moved)
        assert self.ranges(graph, moved) == {0: ASSUMED}
        assert bounds_of(moved) == (ASSUMED[0] + 2, ASSUMED[1] + 2)

    def test_of_integers_that_would_grow_too_large_less_is_assumed(self):
        graph = HandMade()
        mask, ids = graph.input(4), graph.input(4)
        places = graph.call(aten.mul.Tensor, graph.call(aten.cumsum.default, mask, 0), mask)
        assert self.ranges(graph, places, ids, exact=EXACT) == {0: (-(2**12), 2**12), 1: ASSUMED}
        assert bounds_of(places) == (-4 * 2**24, 4 * 2**24)

    def test_no_less_is_assumed_in_vain(self):
        graph = HandMade()
        mask = graph.input(4)
        large = graph.call(aten.mul.Tensor, mask, 2**40)
        assert self.ranges(graph, large, exact=EXACT) == {0: ASSUMED}

    def test_what_is_an_index_is_assumed_to_lie_in_its_table_whatever_else_it_is(self):
        graph = HandMade()
        table, ids = graph.weight(torch.zeros(2**20, 1)), graph.input(3)
        outputs = graph.call(aten.embedding.default, table, ids), graph.call(aten.mul.Tensor, ids, ids)
        assert self.ranges(graph, *outputs, exact=EXACT) == {0: (0, 2**20 - 1)}

    @staticmethod
    def ranges(graph, *outputs, exact=UNKNOWN):
        module = graph.module(*outputs)
        annotate(module, is_input, exact)
        return input_ranges(module)


@pytest.mark.parametrize(
    ("op", "make", "limits"),
    [
        (aten.embedding.default, lambda g, i: (g.weight(torch.zeros(10, 4)), i), [(0, 9)]),
        (aten.index_select.default, lambda g, i: (g.weight(torch.zeros(10, 4)), 1, i), [(0, 3)]),
        (aten.index_select.default, lambda g, i: (g.weight(torch.zeros(10, 4)), -2, i), [(0, 9)]),
        (aten.gather.default, lambda g, i: (g.weight(torch.zeros(10)), 0, i), [(0, 9)]),
        (aten.index.Tensor, lambda g, i: (g.weight(torch.zeros(10, 4)), [None, i]), [(-4, 3)]),
        (aten.index.Tensor, lambda g, i: (g.weight(torch.zeros(10, 4)), [i, i]), [(0, 9), (0, 3)]),
        (aten.neg.default, lambda g, i: (i,), []),
    ],
)
def test_the_limits_of_an_index_are_those_that_torch_enforces(op, make, limits):
    graph = HandMade()
    ids = graph.input(3)
    node = graph.call(op, *make(graph, ids))
    assert index_limits(node) == [(ids, limit) for limit in limits]

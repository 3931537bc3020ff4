"""Bounds of integers that matter only where a comparison selects them, compared with eager torch."""

import pytest
import torch

import torchport
from targets.graphs import HandMade, aten
from torchport.targets.integer_bounds import UNKNOWN, bounds_of
from torchport.targets.value_ranges import annotate

PLACES = torch.arange(-3, 1000)


def buckets(x):
    """Keep small numbers, and map larger ones to their logarithm."""
    far = 16 + (torch.log(x.float() / 16) / 2.08 * 16).to(torch.int64)
    return torch.where(x < 16, x, torch.minimum(far, torch.full_like(far, 31)))


class Buckets:
    """The graph of `buckets`, its nodes at hand.

    Args:
        compare: the comparison of the condition.
        number: what it compares with.
        swapped: whether the branches are exchanged.
    """

    def __init__(self, compare=aten.lt.Scalar, number=16, *, swapped=False):
        self.graph = graph = HandMade()
        self.x = graph.weight(PLACES)
        log = graph.call(aten.log.default, graph.call(aten._to_copy.default, self.x, dtype=torch.float32))
        self.far = graph.call(aten._to_copy.default, log, dtype=torch.int64)
        self.more = graph.call(aten.add.Tensor, self.far, 16)
        condition = graph.call(compare, self.x, number)
        branches = (self.more, self.x) if swapped else (self.x, self.more)
        self.where = graph.call(aten.where.self, condition, *branches)

    def annotated(self, *others):
        annotate(self.graph.module(self.where, *others), lambda node: False)
        return self


def holds(bounds, values):
    return bounds[0] <= values.min().item() and values.max().item() <= bounds[1]


def test_a_logarithm_of_zero_that_is_not_chosen_does_not_count():
    made = Buckets().annotated()
    far = torch.log(PLACES[PLACES >= 16].float()).to(torch.int64)
    assert holds(bounds_of(made.far), far)
    assert bounds_of(made.far)[1] < 10
    assert holds(bounds_of(made.where), torch.cat((PLACES[PLACES < 16], far + 16)))
    assert bounds_of(made.where)[1] < 26


@pytest.mark.parametrize(
    ("compare", "number", "swapped"),
    [(aten.le.Scalar, 15, False), (aten.ge.Scalar, 16, True), (aten.gt.Scalar, 15, True)],
)
def test_each_comparison_says_the_same(compare, number, swapped):
    expected = Buckets().annotated()
    made = Buckets(compare, number, swapped=swapped).annotated()
    assert bounds_of(made.far) == bounds_of(expected.far)
    assert bounds_of(made.where) == bounds_of(expected.where)


@pytest.mark.parametrize(
    ("compare", "number", "swapped"),
    [(aten.lt.Scalar, 0, False), (aten.lt.Scalar, 16, True), (aten.ne.Scalar, 16, False)],
)
def test_a_condition_that_lets_zero_through_gives_no_bounds(compare, number, swapped):
    assert bounds_of(Buckets(compare, number, swapped=swapped).annotated().far) == UNKNOWN


def test_what_is_used_elsewhere_too_counts_everywhere():
    made = Buckets()
    made.annotated(made.more)
    assert bounds_of(made.far) == UNKNOWN


def test_a_condition_on_another_number_says_nothing():
    made = Buckets()
    made.where.args[0].args = (made.graph.weight(PLACES.flip(0)), 16)
    assert bounds_of(made.annotated().far) == UNKNOWN


def test_floats_made_of_integers_are_bounded_without_a_condition():
    graph = HandMade()
    half = graph.call(aten.div.Tensor, graph.weight(torch.tensor([-8, 100])), 2)
    made = graph.call(aten._to_copy.default, half, dtype=torch.int64)
    annotate(graph.module(made), lambda node: False)
    assert holds(bounds_of(made), torch.tensor([-4, 50]))
    assert bounds_of(made)[1] < 64


def test_elements_may_be_moved_on_the_way():
    graph = HandMade()
    mask = graph.call(aten._to_copy.default, graph.weight(torch.ones(1, 1, 8, 8).long()), dtype=torch.float32)
    coarse = graph.call(aten.upsample_nearest2d.default, mask, [2, 2])
    row = graph.call(aten.select.int, coarse, 2, 0)
    made = graph.call(aten._to_copy.default, row, dtype=torch.int64)
    annotate(graph.module(made), lambda node: False)
    assert holds(bounds_of(made), torch.ones(1))
    assert bounds_of(made)[1] < 4


def test_a_condition_says_nothing_of_elements_that_were_moved():
    graph = HandMade()
    x = graph.weight(PLACES[:900].reshape(30, 30))
    moved = graph.call(aten.transpose.int, graph.call(aten._to_copy.default, x, dtype=torch.float32), 0, 1)
    far = graph.call(aten._to_copy.default, graph.call(aten.log.default, moved), dtype=torch.int64)
    where = graph.call(aten.where.self, graph.call(aten.lt.Scalar, x, 16), x, far)
    annotate(graph.module(where), lambda node: False)
    assert bounds_of(far) == UNKNOWN


def test_the_device_chooses_as_torch_does():
    table = torch.randn(32, 4)

    def look_up(x):
        return torch.nn.functional.embedding(buckets(-torch.minimum(x, torch.zeros_like(x))), table)

    x = -torch.arange(0, 300, 7)
    compiled = torchport.compile(look_up, (x,), target="ttnn", options={"dtype": "float32"})
    assert compiled.coverage.complete
    assert torch.equal(compiled(x), look_up(x))
    assert compiled.fallbacks.fallbacks == 0

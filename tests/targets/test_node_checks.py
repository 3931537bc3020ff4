"""Checks that apply to every op of a target."""

import pytest
import torch

from targets.graphs import HandMade, aten
from torchport.targets.node_checks import check_integers, check_tensors, is_random
from torchport.targets.value_ranges import annotate

SMALL = (-(2**24), 2**24)
WIDE = (-(2**31) + 1, 2**31 - 1)


def node_of(op, *args):
    graph = HandMade()
    given = [graph.weight(item) if isinstance(item, torch.Tensor) else item for item in args]
    node = graph.call(op, *given)
    annotate(graph.module(node), lambda item: item.op == "placeholder")
    return node


@pytest.mark.parametrize(("exact", "refused", "text"), [(SMALL, True, "up to 2**24,"), (WIDE, False, "")])
def test_how_wide_integers_may_be_is_the_target_s_own(exact, refused, text):
    node = node_of(aten.mul.Tensor, torch.tensor([2**20]), 64)  # 2**26
    verdict = check_integers(node, exact)
    assert (verdict is not None) == refused
    if verdict is not None:
        assert verdict.reason == "integer_range"
        assert text in verdict.detail


def test_wider_ones_name_the_limit():
    verdict = check_integers(node_of(aten.mul.Tensor, torch.tensor([2**20]), 2**20), WIDE)
    assert "up to 2**31," in verdict.detail


def test_an_index_that_could_be_out_of_bounds_is_refused():
    node = node_of(aten.index_select.default, torch.ones(3), 0, torch.tensor([5]))
    assert "could be outside 0 … 2" in check_integers(node, WIDE).detail


def test_tensors_of_other_dtypes_are_refused():
    node = node_of(aten.relu.default, torch.ones(3, dtype=torch.float64))
    assert check_tensors(node, {torch.float32}).reason == "dtype"
    assert check_tensors(node, {torch.float64}) is None


def test_empty_tensors_are_refused():
    assert check_tensors(node_of(aten.relu.default, torch.ones(0)), {torch.float32}).reason == "shape"


@pytest.mark.parametrize(("share", "drops"), [(0.0, False), (0.5, True)])
def test_attention_is_random_with_dropout_only(share, drops):
    x = torch.rand(1, 2, 4, 8)
    flash = aten._scaled_dot_product_flash_attention_for_cpu.default
    assert is_random(node_of(aten.scaled_dot_product_attention.default, x, x, x, None, share)) == drops
    assert is_random(node_of(flash, x, x, x, share)) == drops
    assert not is_random(node_of(flash, x, x, x))
    assert is_random(node_of(aten.rand_like.default, x))

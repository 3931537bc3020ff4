"""torch's decompositions, as data."""

import torch

from torchport.targets.decompositions import core_decompositions, find_op, is_composite


def test_random_ops_stay_whole():
    assert all(torch.Tag.nondeterministic_seeded not in op.tags for op in core_decompositions())
    assert torch.ops.aten.bernoulli.default not in core_decompositions()


def test_an_op_is_found_by_its_name():
    assert find_op("aten.linear.default") is torch.ops.aten.linear.default
    assert find_op("aten.no_such_op.default") is None
    assert find_op("aten.linear.no_such_overload") is None


def test_composites_are_told_from_the_rest():
    assert is_composite(torch.ops.aten.linear.default)
    assert not is_composite(torch.ops.aten.relu.default)

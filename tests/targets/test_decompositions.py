"""torch's decompositions, and ops by name."""

import pytest
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


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_the_gradient_of_smooth_l1_loss_is_torch_s_own_for_all_numbers(reduction):
    op = torch.ops.aten.smooth_l1_loss_backward.default
    given = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.5, -0.5, 0.1, -0.1, 0.3, -0.3, 0.0])
    gradient = torch.full((10,), 2.0) if reduction == 0 else torch.tensor(2.0)
    arguments = gradient, given, torch.zeros(10), reduction, 0.3
    torch.testing.assert_close(core_decompositions()[op](*arguments), op(*arguments), equal_nan=True)

"""Whether a dynamic-shape graph and a capture for a size of 1 make the same calls."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from torchport import capture


def _same(function):
    """Whether a function makes the same calls for one row as for any number of rows."""
    module = capture.as_module(function)
    rows = {"dynamic_shapes": ({1: Dim("rows", min=1, max=8)},)}
    general = capture.export(module, (torch.ones(2, 3, 4),), {}, **rows)
    one = torch.ones(2, 1, 4)
    static = capture.export(module, (one,), {})
    return capture.same_calls(general.program, static.program, [one])


def _halves(x):
    return x.transpose(0, 1).contiguous().view(-1, 8) * 2


def _halves_of_constant(x):
    return _halves(x) + torch.tensor(3.0)


def _last_rows(x):
    return x + torch.arange(40.0).view(1, 8, 5)[:, 8 - x.shape[1] : 8, :4]


def _returned(x):
    return x.transpose(1, 0).contiguous()


def _returned_view(x):
    return torch.dropout(x.transpose(1, 0).contiguous().view(-1, 8), 0.5, False)


def _written(x):
    x = x * 2
    y = x.transpose(0, 1).contiguous()
    y.add_(1)
    return x + y.transpose(0, 1)


def test_the_same_calls():
    assert _same(lambda x: (x * 2).sum(1))
    assert not _same(lambda x: x * 2 if x.shape[1] == 1 else x * 3)


def test_slices_from_the_start():
    assert _same(_last_rows)


def test_a_copy_that_one_size_does_not_need_is_no_other_call():
    # [2, 1, 4] is contiguous after its first two dimensions are swapped, [2, 3, 4] is not.
    assert _same(_halves)
    assert _same(_halves_of_constant)


@pytest.mark.parametrize("function", [_returned, _returned_view, _written])
def test_unless_somebody_can_tell(function):
    assert not _same(function)

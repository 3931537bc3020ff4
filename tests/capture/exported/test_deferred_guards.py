"""Guards that hold for all sizes are proved here if torch does not; others refuse the model."""

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import nn

import torchport
from torchport.capture import export
from torchport.capture.exported import deferred_guards
from torchport.errors import CaptureError

SIZE = sympy.Symbol("s", integer=True, positive=True)
OTHER = sympy.Symbol("t", integer=True, positive=True)


def least(*parts):
    return sympy.Min(*parts, evaluate=False)


def most(*parts):
    return sympy.Max(*parts, evaluate=False)


@pytest.mark.parametrize(
    "guard",
    [
        sympy.Eq(least(4 * SIZE, 8 * SIZE), 4 * SIZE, evaluate=False),
        sympy.Eq(least(8 * SIZE, 4 * SIZE), 4 * SIZE, evaluate=False),
        sympy.Eq(most(8 * SIZE, 4 * SIZE, SIZE), 8 * SIZE, evaluate=False),
        sympy.Eq(3 * least(SIZE * OTHER, 2 * SIZE * OTHER), 3 * SIZE * OTHER, evaluate=False),
        sympy.Ne(least(4 * SIZE, 8 * SIZE), 5 * SIZE, evaluate=False),
    ],
)
def test_what_holds_for_all_sizes_is_proved(guard):
    assert deferred_guards._in_order(guard) is sympy.true


@pytest.mark.parametrize(
    "guard",
    [
        sympy.Eq(least(4 * SIZE, 8 * SIZE), 8 * SIZE, evaluate=False),
        sympy.Eq(least(SIZE, OTHER), SIZE, evaluate=False),
        sympy.Eq(least(SIZE, 4), 4, evaluate=False),
        sympy.Eq(least(SIZE - 4, 2 * SIZE - 8), SIZE - 4, evaluate=False),  # not below 4
        sympy.Eq(SIZE % 2, 0, evaluate=False),
    ],
)
def test_what_may_not_hold_is_not(guard):
    assert deferred_guards._in_order(guard) is not sympy.true


class Halves(nn.Module):
    def forward(self, x):
        if x.shape[0] % 2 == 0:
            return x.view(2, -1).sum(1)
        return x


def test_a_guard_that_does_not_hold_for_all_sizes_refuses_the_model():
    with pytest.raises(CaptureError, match="Constraints violated"):
        export(Halves(), (torch.ones(6),), dynamic_shapes=({0: torch.export.Dim("rows", max=8)},))


class Heads(nn.Module):
    def forward(self, x):
        rows, count, _ = x.shape
        keys = x.view(rows, count, 2, 4).transpose(1, 2)
        repeated = keys[:, :, None].expand(rows, 2, 2, count, 4).reshape(rows, 4, count, 4)
        return F.scaled_dot_product_attention(repeated + 1, repeated, repeated)


class FewHeads(Heads):
    def forward(self, x):
        return super().forward(x * 2 if x.shape[1] < 9 else x)


def test_a_guard_that_is_not_proved_is_not_lost_among_those_that_are():
    dims = ({1: torch.export.Dim("count", max=40)},)
    with pytest.raises(CaptureError, match="Constraints violated"):
        export(FewHeads(), (torch.randn(2, 7, 8),), dynamic_shapes=dims)


def test_heads_that_are_repeated_take_any_number_of_tokens():
    model, dims = Heads().eval(), ({1: torch.export.Dim("count", max=40)},)
    compiled = torchport.compile(model, (torch.randn(2, 7, 8),), dynamic_shapes=dims, target="host")
    for count in (1, 2, 40):
        x = torch.randn(2, count, 8)
        torch.testing.assert_close(compiled(x), model(x))
    assert len(compiled.programs) == 1

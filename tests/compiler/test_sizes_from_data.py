"""Data-dependent sizes: ops that have them stay on the host with the reason, and the rest is taken."""

import pytest
import torch
from torch import nn

import torchport


class Selects(nn.Module):
    """Uses one of a data-dependent number of columns: its size is known, its stride is not."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x).relu()
        kept = y.index_select(1, (x[0] > 0).nonzero()[:, 0])
        torch._check(kept.shape[1] > 0)
        return y.softmax(-1), (kept[:, 0] * 2).sigmoid()


def rows(x):
    return x[(x > 0).all(-1)].relu()


def masked(x):
    return torch.masked_select(x, x > 0).sin() * 2


def unique(x):
    return torch.unique((x * 3).round()).exp() + 1


def repeated(x):
    return torch.repeat_interleave(x, (x[:, 0].abs() * 3).long(), dim=0).relu()


def positions(x):
    return torch.nonzero(x > 0).float().cos()


@pytest.mark.parametrize("model", [rows, masked, unique, repeated, positions, Selects().eval()])
@pytest.mark.parametrize("on", ["host", "openvino", "ttnn"])
def test_results_are_eager_torchs(model, on):
    torch.manual_seed(0)
    x = torch.randn(6, 4).abs()
    compiled = torchport.compile(model, (x,), target=on)
    for y in (x, torch.randn(6, 4), torch.ones(6, 4)):
        y[0, 0] = 1.0
        with torch.no_grad():
            torch.testing.assert_close(compiled(y), model(y), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("on", ["host", "openvino", "ttnn"])
def test_an_op_on_a_tensor_with_unknown_strides_stays_with_the_reason(on):
    coverage = torchport.explain(Selects().eval(), (torch.ones(6, 4),), target=on)
    reasons = {row.op: row.detail for row in coverage.stayed}
    assert reasons["aten.mul.Tensor"] == "the memory layout of a tensor in it is known at run time only"
    assert coverage.ops_remain < coverage.ops_before

"""Norms that are folded into half-precision weights: each weight is rounded once."""

import copy

import pytest
import torch
from torch import nn

import torchport
from torchport.verification import HALVES

OPTIONS = {"cache": False, "speed_trial": False}
BOTH = pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])


def model_of(**settings):
    """Return convolutions and norms whose statistics are far from those of a new norm."""
    torch.manual_seed(0)
    layers = []
    for given, out in ((8, 32), (32, 64), (64, 64)):
        norm = nn.BatchNorm2d(out)
        norm.running_mean.normal_(0, 0.3)
        norm.running_var.uniform_(0.02, 0.3)
        norm.weight.data.uniform_(0.3, 1.0)
        layers += [nn.Conv2d(given, out, 3, padding=1, **settings), norm, nn.ReLU()]
    return nn.Sequential(*layers).eval()


@BOTH
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_as_close_as_weights_that_are_folded_in_float64(bias, dtype):
    model, x = model_of(bias=bias).to(dtype), torch.randn(2, 8, 12, 12).to(dtype)
    exact = copy.deepcopy(model).double()(x.double())
    folded = copy.deepcopy(model).double()
    parts = [
        nn.utils.fusion.fuse_conv_bn_eval(folded[place], folded[place + 1])
        for place in range(0, len(folded), 3)
    ]
    by_hand = nn.Sequential(*(layer for part in parts for layer in (part, nn.ReLU()))).to(dtype)

    def error(each):
        compiled = torchport.compile(each, (x,), options=OPTIONS)
        assert compiled.coverage.complete
        return float((compiled(x).double() - exact).norm() / exact.norm())

    assert error(model) <= 1.1 * error(by_hand)


@torch.no_grad()
def test_not_where_the_weights_would_lose_their_digits():
    torch.manual_seed(0)
    model = nn.Conv2d(4, 8, 3, bias=False).half()
    x = (torch.randn(1, 4, 9, 9) * 500).half()
    compiled = torchport.compile(lambda x: model(x) * 1e-6, (x,), options=OPTIONS)
    assert compiled.coverage.complete
    exact = copy.deepcopy(model).double()(x.double()) * 1e-6
    torch.testing.assert_close(compiled(x).double(), exact, rtol=0, atol=0.002 * float(exact.abs().max()))

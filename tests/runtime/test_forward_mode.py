"""Tangents of forward-mode differentiation are computed by eager torch, not lost on a device."""

import pytest
import torch
from torch.autograd import forward_ad

import torchport


def model(x):
    return torch.relu(x) * x


@pytest.fixture(params=["torchport.compile", "torch.compile"])
def compiled(request, target, torch_compile):
    if request.param == "torch.compile":
        return torch_compile(model, target)
    return torchport.compile(model, (torch.ones(3),), target=target)


def test_tangents_are_propagated_by_eager_torch(compiled):
    x, tangent = torch.tensor([-1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0, 100.0])
    with forward_ad.dual_level():
        result = forward_ad.unpack_dual(compiled(forward_ad.make_dual(x, tangent)))
        assert torch.equal(result.primal, torch.tensor([0.0, 4.0, 9.0]))
        assert torch.equal(result.tangent, torch.tensor([0.0, 40.0, 600.0]))  # 2 x times the tangent
        assert forward_ad.unpack_dual(compiled(x)).tangent is None

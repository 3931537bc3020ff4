"""A buffer that the model reassigns is written in place, which is indistinguishable from outside."""

import copy

import pytest
import torch
from torch import nn

import torchport
from torchport.capture import export
from torchport.errors import CaptureError


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x):
        self.count = self.count + x
        return self.count * 10


class Swaps(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.register_buffer("a", torch.zeros(2))
        self.inner.register_buffer("b", torch.ones(2))

    def forward(self, x):
        self.inner.a, self.inner.b = self.inner.b, self.inner.a
        return x + self.inner.a


class Grows(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x):
        self.seen = torch.cat([self.seen, x])
        return self.seen.sum()


@pytest.mark.parametrize("make", [Counter, Swaps])
def test_a_replaced_buffer_has_its_new_value_after_each_call(make, target):
    model, eager = make(), make()
    compiled = torchport.compile(model, (torch.ones(2),), target=target)
    for _ in range(3):
        x = torch.randn(2)
        torch.testing.assert_close(compiled(x), eager(x))
        torch.testing.assert_close(model.state_dict(), eager.state_dict())


def test_capturing_puts_the_buffer_back():
    model = Counter()
    buffer = model.count
    before = copy.deepcopy(model.state_dict())
    export(model, (torch.ones(2),))
    assert model.count is buffer
    assert torch.equal(model.count, before["count"])


def test_a_buffer_of_another_shape_is_refused_by_name():
    with pytest.raises(CaptureError, match="replaces its buffer 'seen' with one of another shape"):
        export(Grows(), (torch.ones(2),))

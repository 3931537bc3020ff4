"""The peak of memory: by hand, and as torch's allocator shows it on real runs."""

import platform

import pytest
import torch
from torch import nn

import torchport
from analysis.allocator import real_peak
from torchport import zoo

FLOAT = 4
on_x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="what a convolution takes for itself is modelled for oneDNN's kernels on x86",
)


class Chain(nn.Module):
    def forward(self, x):
        a = x.relu()
        b = torch.cat([a, a])  # a and b live: 3 times x, the most
        c = b.sum()
        del a, b
        return x.tanh() + c  # c, tanh and the sum


def test_the_peak_by_hand():
    cost = torchport.analyze(Chain(), (torch.ones(100),)).cost
    assert cost.peak.bytes == cost.peak.tensor_bytes == cost.activation_bytes == FLOAT * 301
    assert (cost.peak.op, cost.peak.module_path, cost.peak.phase) == ("aten.sum.default", "(root)", "forward")
    assert cost.timeline[:3] == (FLOAT * 100, FLOAT * 300, FLOAT * 301)
    assert cost.input_bytes == FLOAT * 100
    assert cost.total_bytes == FLOAT * 401


def test_the_backward_pass_keeps_what_it_needs():
    model = nn.Sequential(nn.Linear(100, 100, bias=False), nn.Tanh(), nn.Tanh())
    x = torch.ones(1, 100)
    assert torchport.analyze(model, (x,)).cost.activation_bytes == FLOAT * 200
    cost = torchport.analyze(model, (x,), backward=True).cost
    # the result, its gradient, that of the linear layer's result, and that of its weight
    assert cost.peak.bytes == FLOAT * (100 + 100 + 100 + 100 * 100)
    assert (cost.peak.op, cost.peak.module_path, cost.peak.phase) == ("aten.mm.default", "0", "backward")


def test_tied_weights_count_once():
    first, second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    second.weight = first.weight
    cost = torchport.analyze(nn.Sequential(first, second), (torch.ones(1, 8),)).cost
    assert (cost.parameters, cost.parameter_bytes) == (64, 256)
    assert [module.parameters for module in cost.modules] == [64, 64, 64]


@pytest.fixture(
    scope="module", params=[pytest.param("torchvision:resnet50", marks=on_x86), "hf:bert-base-uncased"]
)
def model(request):
    return zoo.load(request.param, weights=False)


@pytest.mark.parametrize("backward", [False, True])
def test_the_peak_is_what_the_allocator_shows(model, backward):
    cost = torchport.analyze(model.module, model.args, model.kwargs, backward=backward).cost
    real = real_peak(model.module, model.args, dict(model.kwargs), backward)
    assert cost.peak.bytes == pytest.approx(real, rel=0.02)


@pytest.mark.parametrize("name", ["hf-small:gpt2", "hf-small:t5"])
def test_gradients_are_added_in_place_where_torch_does(name):
    model = zoo.load(name, weights=False, batch=4)
    cost = torchport.analyze(model.module, model.args, model.kwargs, backward=True).cost
    assert cost.peak.bytes == real_peak(model.module, model.args, dict(model.kwargs), True)


@on_x86
@pytest.mark.parametrize("threads", [1, 2])
def test_the_workspace_of_a_convolution_is_what_the_allocator_shows(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for layer in (
            nn.Conv2d(16, 32, 3, padding=1),
            nn.Conv2d(16, 64, 1, stride=2),
            nn.Conv2d(3, 16, 7),
            nn.Conv2d(16, 16, 3, groups=16),
        ):
            x = torch.ones(2, layer.in_channels, 32, 32)
            cost = torchport.analyze(layer, (x,)).cost
            assert cost.peak.bytes == pytest.approx(real_peak(layer, (x,), {}, False), rel=0.02), layer
    finally:
        torch.set_num_threads(before)

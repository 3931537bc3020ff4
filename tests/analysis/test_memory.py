"""Peak memory, compared with hand calculation and with torch's allocator on real runs.

Which kernels' workspaces are known depends on the processor; what a record calls exact must be so on any.
"""

import pytest
import torch
from torch import nn

import torchport
from analysis.allocator import real_peak
from torchport import zoo
from torchport.capture.stream import workspace
from torchport.records import MemoryPeak

FLOAT = 4
WRAPPED = 64  # bytes of scalars that kernels wrap as tensors
on_x86 = pytest.mark.skipif(
    not workspace.is_modelled_processor(),
    reason="what a convolution takes for itself is estimated for oneDNN's kernels on x86",
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
    assert not cost.peak.is_estimate  # on any processor: these kernels need no workspace


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


@pytest.fixture(scope="module")
def model(request):
    return zoo.load(request.param, weights=False)


@pytest.mark.parametrize(
    ("model", "backward"),
    [
        ("torchvision:resnet50", False),
        pytest.param("torchvision:resnet50", True, marks=pytest.mark.conformance),
        ("hf-small:bert", False),
        ("hf-small:bert", True),
        pytest.param("hf:bert-base-uncased", False, marks=pytest.mark.conformance),
        pytest.param("hf:bert-base-uncased", True, marks=pytest.mark.conformance),
    ],
    indirect=["model"],
)
def test_the_peak_is_what_the_allocator_shows(model, backward):
    cost = torchport.analyze(model.module, model.args, model.kwargs, backward=backward).cost
    real = real_peak(model.module, model.args, dict(model.kwargs), backward)
    if not cost.peak.is_estimate:
        assert cost.peak.bytes == pytest.approx(real, abs=WRAPPED)
    elif workspace.is_modelled_processor():
        assert cost.peak.bytes == pytest.approx(real, rel=0.02)
    else:
        assert cost.peak.tensor_bytes <= real  # tensors are counted, kernels' workspaces are not


def attend(query, key, value):
    return nn.functional.scaled_dot_product_attention(query, key, value) + 0


EXACT = {
    "a product": (nn.Linear(64, 64), (torch.ones(32, 64),)),
    "a batch of products": (torch.bmm, (torch.ones(2, 16, 32), torch.ones(2, 32, 16))),
    "attention": (attend, (torch.ones(1, 2, 200, 32),) * 3),
    "attention to many": (attend, (torch.ones(1, 2, 8, 32), *(torch.ones(1, 2, 600, 32),) * 2)),
}


@pytest.mark.parametrize("name", EXACT)
def test_products_and_attention_are_exact_where_they_are_modelled(name, monkeypatch):
    model, args = EXACT[name]
    module = model if isinstance(model, nn.Module) else Function(model)
    cost = torchport.analyze(module, args).cost
    assert cost.peak.is_estimate is not workspace.is_modelled_processor()
    if workspace.is_modelled_processor():
        assert cost.peak.bytes == pytest.approx(real_peak(module, args, {}, False), abs=WRAPPED)
    monkeypatch.setattr(workspace, "is_modelled_processor", lambda: False)
    elsewhere = torchport.analyze(module, args).cost
    assert elsewhere.peak.is_estimate
    assert elsewhere.peak.workspace_bytes == 0
    assert (
        elsewhere.peak.estimated_because
        == torchport.records.Cost.from_json(elsewhere.to_json()).peak.estimated_because
    )


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def mixed(x, y):
    return (x + y).relu()  # the integers are converted to floats first, in hidden memory


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (nn.Conv2d(5, 7, 3), (torch.ones(1, 5, 8, 8),)),
        (Function(mixed), (torch.ones(1000), torch.ones(1000, dtype=torch.int64))),
        (Function(lambda x: nn.functional.gelu(x.T)), (torch.ones(8, 9),)),
        (Function(lambda x: x.sort().values), (torch.ones(8, 9),)),
        (nn.Linear(8, 8).bfloat16(), (torch.ones(8, 8, dtype=torch.bfloat16),)),
    ],
    ids=["convolution", "promotion", "strided", "sort", "bfloat16"],
)
def test_unknown_workspaces_make_the_peak_an_estimate(model, args):
    peak = torchport.analyze(model, args).cost.peak
    assert peak.is_estimate
    assert "aten." in peak.estimated_because


def test_a_backward_peak_is_an_estimate():
    x = torch.ones(100, requires_grad=True)
    assert torchport.analyze(nn.SiLU(), (x,), backward=True).cost.peak.is_estimate
    assert not torchport.analyze(nn.SiLU(), (x,)).cost.peak.is_estimate


def test_a_record_that_does_not_say_is_an_estimate():
    stored = torchport.analyze(Chain(), (torch.ones(100),)).cost.peak.to_json()
    assert not MemoryPeak.from_json(stored).is_estimate
    del stored["estimated_because"]
    assert MemoryPeak.from_json(stored).is_estimate


@pytest.mark.parametrize("name", ["hf-small:gpt2", "hf-small:t5"])
def test_gradients_are_added_in_place_where_torch_does(name):
    model = zoo.load(name, weights=False, batch=4)
    cost = torchport.analyze(model.module, model.args, model.kwargs, backward=True).cost
    assert cost.peak.bytes == real_peak(model.module, model.args, dict(model.kwargs), True)


@on_x86
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.conformance), 2])
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

"""The tracer as a context manager: its promised features, and limitations of the original that are lifted."""

import threading

import numpy
import pytest
import torch
from torch import nn

from codegen.models import Lambda
from codegen.round_trip import load
from torchport import model_tracer
from torchport.codegen.tracer import trace
from torchport.errors import CaptureError, TorchportError


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.proj = nn.Linear(3, width)

    def forward(self, x):
        return self.proj(x).relu()


def test_a_model_is_traced_and_written(tmp_path):
    with model_tracer():
        torchvision = pytest.importorskip("torchvision")
        model = torchvision.models.squeezenet1_1()  # compat/test_seeds.py has alexnet, which takes seconds
        model.eval()
        dummy_input = torch.rand((1, 3, 64, 64))
        graph = trace(model, dummy_input)
        graph.generate_code(tmp_path / "my_squeezenet.py", tmp_path / "my_squeezenet.pth", "Squeezenet")
    made = load(tmp_path / "my_squeezenet.py")
    assert type(made).__name__ == "Squeezenet"
    with torch.no_grad():
        assert torch.equal(made(dummy_input), model(dummy_input))


def test_models_may_be_created_inside_or_outside_and_several_may_be_traced():
    outside = Net(5)
    x = torch.rand(2, 3)
    with model_tracer():
        inside = Net(6)
        graphs = [trace(outside, x), trace(inside, x), trace(outside, x)]
    for graph, model in zip(graphs, (outside, inside, outside), strict=True):
        assert torch.equal(graph(x), model(x))


def test_constants_made_at_run_time_become_weights_if_they_are_large(tmp_path):
    table = torch.linspace(0, 1, 4000)
    graph = trace(Lambda(lambda self, x: x + table[: x.shape[1]] + torch.tensor(0.5)), torch.rand(2, 3))
    text = graph.generate_code(tmp_path / "net.py", tmp_path / "net.pth", "Net")
    assert torch.equal(torch.load(tmp_path / "net.pth")["table"], table)
    assert "torch.tensor(0.5)" in text


def test_control_flow_is_an_error_and_never_a_wrong_result():
    with pytest.raises(CaptureError, match="values of a tensor"):
        trace(Lambda(lambda self, x: x + 1 if x.mean() > 0 else x), torch.rand(3))


def test_numbers_are_tracked_like_tensors(tmp_path):
    class Scaled(nn.Module):
        def forward(self, x, scale):
            return x * (scale + x.shape[0])

    graph = trace(Scaled(), (torch.ones(2), 3))
    assert torch.equal(graph(torch.ones(4), 10), torch.full((4,), 14.0))


def test_strings_and_lists_are_constants_with_a_guard_and_arrays_are_refused():
    class Named(nn.Module):
        def forward(self, x, name, sizes):
            return x.reshape(sizes) if name == "reshape" else x

    graph = trace(Named(), (torch.ones(4), "reshape", [2, 2]))
    assert graph(torch.zeros(4), "reshape", [2, 2]).shape == (2, 2)
    with pytest.raises(TorchportError, match="traced with"):
        graph(torch.zeros(4), "keep", [2, 2])
    with pytest.raises(TorchportError, match="traced with"):
        graph(torch.zeros(4), "reshape", [4, 1])
    with pytest.raises(CaptureError, match="numpy array"):
        trace(Named(), (torch.ones(4), "reshape", numpy.array([2, 2])))


def test_data_shape_device_and_dtype_are_tracked():
    def forward(self, x):
        ones = torch.ones(x.shape[0], dtype=x.dtype, device=x.device)
        return x.data + ones, x.T, x.mT

    graph = trace(Lambda(forward), torch.rand(3, 3))
    x = torch.rand(5, 5, dtype=torch.float64)
    for ours, theirs in zip(graph(x), forward(None, x), strict=True):
        assert ours.dtype == torch.float64
        assert torch.equal(ours, theirs)


def test_numel_of_a_size():
    def forward(self, x):
        return x.sum() / x.size().numel() + x.shape[1:].numel()

    graph = trace(Lambda(forward), torch.rand(2, 3))
    x = torch.rand(7, 2)
    assert torch.equal(graph(x), forward(None, x))


def test_tracing_has_no_side_effects_on_the_model_or_torch():
    model = Net()
    hooks = len(model.proj._forward_hooks)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trace(model, torch.rand(2, 3))
    assert len(model.proj._forward_hooks) == hooks
    assert model._forward_pre_hooks == {}
    assert torch.overrides._get_current_function_mode_stack() == []
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert type(torch.rand(2)) is torch.Tensor


def test_threads_trace_and_run_one_model_at_the_same_time():
    model = nn.Sequential(*[Net(3) for _ in range(20)]).eval()
    x = torch.rand(2, 3)
    expected = model(x)
    wrong = []

    def work(traces):
        for _ in range(5):
            result = trace(model, x)(x) if traces else model(x)
            if type(result) is not torch.Tensor or not torch.equal(result, expected):
                wrong.append(result)

    threads = [threading.Thread(target=work, args=(traces,)) for traces in (True, False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []

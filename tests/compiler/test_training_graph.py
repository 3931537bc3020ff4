"""Graphs that want gradients: AOTAutograd's forward and backward, each with islands."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchport.compiler import training_graph
from torchport.errors import CompileError


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3 * 9, 2)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(x.flatten(1))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids):
        x = self.embed(ids)
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


CASES = {
    "convolutions": (ConvNet, lambda: torch.randn(2, 1, 8, 8)),
    "attention": (Mixer, lambda: torch.randint(0, 11, (2, 5))),
}


@pytest.mark.parametrize(("make", "inputs"), CASES.values(), ids=CASES)
def test_steps_of_training_equal_eager_torch_s(make, inputs, target, torch_compile):
    model = make().train()
    eager = copy.deepcopy(model)
    compiled = torch_compile(model, target)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, eager)]
    for _ in range(3):
        x = inputs()
        ours, theirs = compiled(x), eager(x)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        for result, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            result.square().mean().backward()
        grads = [{name: p.grad for name, p in each.named_parameters()} for each in (model, eager)]
        torch.testing.assert_close(grads[0], grads[1], rtol=1e-3, atol=1e-4)
        for optimizer in optimizers:
            optimizer.step()
        torch.testing.assert_close(model.state_dict(), eager.state_dict(), rtol=1e-3, atol=1e-4)


@pytest.fixture
def programs(monkeypatch):
    """Collects the programs of the forward and backward graphs."""
    made = []
    build = training_graph.build_program

    def remember(*args):
        program, plan = build(*args)
        made.append(program)
        return program, plan

    monkeypatch.setattr(training_graph, "build_program", remember)
    return made


def test_forward_and_backward_both_have_islands(programs, target, torch_compile):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    torch_compile(model, target)(torch.randn(2, 3)).sum().backward()
    assert len(programs) == 2
    assert all(program.islands for program in programs)


def test_gradients_of_inputs(target, torch_compile):
    x = torch.randn(3, requires_grad=True)
    torch_compile(lambda x: (x * x * x).sum(), target)(x).backward()
    torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)


def test_dropout_equals_eager_torch_s_for_the_same_seed(target, torch_compile):
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 4)).train()
    eager = copy.deepcopy(model)
    compiled, x = torch_compile(model, target), torch.randn(4, 16)
    for seed in (1, 2):
        torch.manual_seed(seed)
        ours = compiled(x)
        torch.manual_seed(seed)
        theirs = eager(x)
        torch.testing.assert_close(ours, theirs)
    ours.sum().backward()
    theirs.sum().backward()
    torch.testing.assert_close(model[0].weight.grad, eager[0].weight.grad)


def test_a_new_batch_size_in_training(target, torch_compile):
    model = nn.Linear(3, 2)
    compiled = torch_compile(model, target)
    for rows in (2, 5, 3):
        x = torch.randn(rows, 3)
        model.zero_grad()
        compiled(x).sum().backward()
        torch.testing.assert_close(model.weight.grad, x.sum(0).expand(2, 3))


def test_a_graph_that_the_target_cannot_build_is_trained_eagerly(torch_compile, monkeypatch, caplog):
    def fail(*_):
        raise CompileError("no")

    monkeypatch.setattr(training_graph, "build_program", fail)
    x = torch.randn(3, requires_grad=True)
    torch_compile(lambda x: x.square().sum(), "host")(x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    assert "a training graph runs with eager torch" in caplog.text


def test_nan_in_training_stays_nan(target, torch_compile):
    x = torch.tensor([1.0, float("nan")], requires_grad=True)
    result = torch_compile(torch.relu, target)(x)
    torch.testing.assert_close(result, torch.relu(x), equal_nan=True)

"""Models with graph breaks: more than one graph."""

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import CaptureError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.log = []

    def forward(self, x):
        y = self.first(x)
        print("half way")
        if y.sum() > 0:
            y = torch.relu(self.second(y))
        else:
            y = torch.tanh(self.third(y))
        self.log.append(y.shape[0])
        return y * 2, y.max().item()


@pytest.mark.parametrize("gradients", [False, True])
def test_a_print_and_a_branch_on_data(gradients, target, torch_compile, capsys):
    model = Net().eval()
    compiled = torch_compile(model, target)
    signs = set()
    with torch.set_grad_enabled(gradients):
        for _ in range(6):
            x = torch.randn(2, 3) * 3
            ours, theirs = compiled(x), model(x)
            torch.testing.assert_close(ours, theirs)
            signs.add(bool(model.first(x).sum() > 0))
    assert signs == {True, False}
    assert model.log == [2] * 12
    assert capsys.readouterr().out == "half way\n" * 12


def test_gradients_across_a_break(target, torch_compile):
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            y = torch.tanh(self.first(x))
            torch._dynamo.graph_break()
            return self.second(y)

    model, x = Broken(), torch.randn(2, 3)
    torch_compile(model, target)(x).sum().backward()
    ours = model.first.weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(ours, model.first.weight.grad)


def test_a_loop_whose_length_depends_on_data(target, torch_compile):
    def model(x):
        steps = 0
        while x.sum() < 100:
            x = x * 2 + 1
            steps += 1
        return x, steps

    compiled = torch_compile(model, target)
    with torch.no_grad():
        for start in (1.0, 30.0, 200.0):
            x = torch.full((3,), start)
            torch.testing.assert_close(compiled(x), model(x))


def test_torchport_compile_refuses_and_names_the_way_out(target):
    with pytest.raises(CaptureError, match="depends on the values of a tensor") as caught:
        torchport.compile(Net().eval(), (torch.ones(2, 3),), target=target)
    assert 'torch.compile(model, backend="torchport")' in caught.value.remedy
    assert __file__ in caught.value.where


def test_ops_whose_result_has_a_size_known_at_run_time_only(bring_up):
    def model(x):
        found = torch.nonzero(x > 0)
        return found, (x[x > 0] * 2).sum()

    compiled = bring_up(model, torch.tensor([1.0, -1.0, 2.0]))
    for x in (
        torch.tensor([1.0, -1.0, 2.0]),
        torch.tensor([3.0, 4.0, 5.0]),
        torch.tensor([-1.0, -1.0, -1.0]),
    ):
        torch.testing.assert_close(compiled(x), model(x))

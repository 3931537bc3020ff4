"""Running the host graph with its islands."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchport
from torchport.targets.target import OutOfRange


def program(target, function, *args, **options):
    return torchport.compile(function, args, target=target, options=options)._first.program


def test_a_graph_that_is_one_island_is_called_directly(target):
    made = program(target, lambda x: F.relu(x) * 2, torch.ones(3))
    [island] = made.islands.values()
    assert made._call is island


def test_a_single_island_that_uses_some_of_the_inputs_is_called_directly(target):
    def model(x, unused, y):
        return {"sum": y + 1, "difference": (x - y).relu()}

    made = program(target, model, torch.ones(3), torch.ones(2), torch.ones(3))
    checked = []
    x, y = torch.randn(3), torch.randn(3)
    found = made.run([x, torch.ones(2), y], check=lambda: checked.append(made))
    torch.testing.assert_close(found, model(x, None, y))
    torch.testing.assert_close(made.run([x, torch.ones(2), y]), model(x, None, y))
    assert len(checked) == 1
    assert not isinstance(made._call, type(lambda: None))  # not the function that runs the graph


def test_host_ops_and_islands_alternate(target):
    def model(x):
        return torch.tanh(torch.relu(x) + 1) * 2

    made = program(target, model, torch.ones(3), keep_ops=["aten.tanh"])
    assert len(made.islands) == 2
    x = torch.randn(3)
    torch.testing.assert_close(made.run([x]), model(x))


def test_the_graph_runs_through_the_op_as_well(target):
    made = program(target, lambda x: torch.tanh(x) + 1, torch.ones(3), keep_ops=["aten.tanh"])
    x = torch.randn(3)
    torch.testing.assert_close(made.graph_module(x)[0], torch.tanh(x) + 1)


def test_no_gradients_are_recorded(target):
    made = program(target, nn.Linear(3, 2), torch.ones(1, 3), keep_ops=["aten.linear", "aten.addmm"])
    assert not made.run([torch.ones(1, 3)]).requires_grad


def write_and_read(a, b):
    a.add_(1)
    return b * 2


def test_aliasing_inputs_are_refused_if_one_is_mutated(target):
    made = program(target, write_and_read, torch.zeros(4), torch.zeros(4))
    base = torch.zeros(8)
    assert made.run([base[:4].clone(), base[4:].clone()]).tolist() == [0.0] * 4
    with pytest.raises(OutOfRange, match="shares its memory"):
        made.run([base[:4], base[2:6]])
    assert base.tolist() == [0.0] * 8


def test_inputs_may_alias_if_none_is_mutated(target):
    base = torch.arange(4.0)
    made = program(target, torch.add, torch.zeros(4), torch.zeros(4))
    assert made.run([base, base.view(4)]).tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_failed_call_draws_no_random_numbers():
    def model(x):
        return torch.relu(torch.bernoulli(torch.full((3,), 0.5)) * x)

    made = program("openvino", model, torch.ones(3))
    state = torch.get_rng_state()
    with pytest.raises(OutOfRange):
        made.run([torch.full((3,), float("nan"))])
    assert torch.equal(torch.get_rng_state(), state)

"""Weights that change after compiling: the next call uses them."""

import pytest
import torch
from torch import nn

import torchport


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.head = nn.Linear(3, 3)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        return torch.tanh(self.head(torch.relu(self.body(x)))) * self.scale


def swap(model):
    model.body, model.head = model.head, model.body


CHANGES = {
    "weight.mul_": lambda m: m.head.weight.mul_(2),
    "weight.data.mul_": lambda m: m.head.weight.data.mul_(2),
    "weight.data = …": lambda m: setattr(m.head.weight, "data", torch.randn(3, 3)),
    "module.weight = Parameter(…)": lambda m: setattr(m.head, "weight", nn.Parameter(torch.randn(3, 3))),
    "load_state_dict": lambda m: m.load_state_dict(Net().state_dict()),
    "load_state_dict(assign=True)": lambda m: m.load_state_dict(Net().state_dict(), assign=True),
    "a buffer in place": lambda m: m.scale.mul_(3),
    "a buffer replaced": lambda m: setattr(m, "scale", torch.full((3,), 4.0)),
    "a module replaced": lambda m: setattr(m, "head", nn.Linear(3, 3)),
    "modules swapped": swap,
    "double": lambda m: m.double(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_shows_in_the_next_call(change, bring_up):
    model, x = Net().eval(), torch.randn(2, 3)
    compiled = bring_up(model, x)
    before = compiled(x)
    torch.testing.assert_close(before, model(x))
    change(model)
    x = x.to(model.head.weight.dtype)
    torch.testing.assert_close(compiled(x), model(x))
    assert not torch.equal(compiled(x).double(), before.double())


def test_changes_back_and_forth(bring_up):
    model, x = nn.Linear(3, 3).eval(), torch.randn(2, 3)
    compiled = bring_up(model, x)
    for factor in (2.0, 0.5, 2.0):
        model.weight.mul_(factor)
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("which", [0, 1])
def test_one_of_two_tied_weights_is_replaced(which, bring_up):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)).eval()
    model[1].weight = model[0].weight
    x = torch.randn(2, 3)
    compiled = bring_up(model, x)
    torch.testing.assert_close(compiled(x), model(x))
    model[0].weight.mul_(2)
    torch.testing.assert_close(compiled(x), model(x))
    model[which].weight = nn.Parameter(torch.randn(3, 3))
    torch.testing.assert_close(compiled(x), model(x))


def test_double_weights_through_data(bring_up):
    model, x = nn.Linear(3, 3).double().eval(), torch.randn(2, 3, dtype=torch.float64)
    compiled = bring_up(model, x)
    compiled(x)
    model.weight.data.mul_(2)
    torch.testing.assert_close(compiled(x), model(x))


class Settings:
    def __init__(self):
        self.slope = 0.5
        self.names = {"a", "b"}


class Plain(nn.Module):
    """Holds numbers and tensors that are not parameters."""

    def __init__(self):
        super().__init__()
        self.factor = 2.0
        self.shifts = [torch.ones(3)]
        self.by_name = {"more": 1}
        self.settings = Settings()
        self.act = nn.Identity()
        self.pair = (1.0, [2.0])

    def forward(self, x):
        x = self.act(x) * self.factor * self.settings.slope + sum(self.shifts) + self.pair[1][0]
        return x + len(self.settings.names) + self.by_name.get("more", 0) + self.by_name.get("less", 0)


STATE_CHANGES = {
    "a number": lambda m: setattr(m, "factor", 5.0),
    "a number's sign": lambda m: setattr(m, "factor", -2.0),
    "a tensor in a list": lambda m: m.shifts.__setitem__(0, torch.zeros(3)),
    "a longer list": lambda m: m.shifts.append(torch.full((3,), 7.0)),
    "an entry of a dict": lambda m: m.by_name.update(more=9),
    "a new entry": lambda m: m.by_name.update(less=-4),
    "an entry for another": lambda m: (m.by_name.pop("more"), m.by_name.update(less=3)),
    "an attribute of an attribute": lambda m: setattr(m.settings, "slope", -1.0),
    "an element of a set": lambda m: m.settings.names.add("c"),
    "a list in a tuple": lambda m: m.pair[1].__setitem__(0, 8.0),
    "another object": lambda m: setattr(m, "settings", type("Other", (), {"slope": 3.0, "names": ()})()),
    "a hook": lambda m: m.act.register_forward_hook(lambda module, args, result: result * 3),
    "a hook before": lambda m: m.register_forward_pre_hook(lambda module, args: (args[0] * 3,)),
    "another forward": lambda m: setattr(m, "forward", lambda x: x - 1),
}


@pytest.mark.parametrize("change", STATE_CHANGES.values(), ids=STATE_CHANGES)
@pytest.mark.parametrize("target", ["host", pytest.param("openvino", marks=pytest.mark.conformance)])
def test_state_that_changes(change, target):
    model = Plain()
    compiled = torchport.compile(model, (torch.ones(3),), target=target)
    before = compiled(torch.ones(3))
    change(model)
    torch.testing.assert_close(compiled(torch.ones(3)), model(torch.ones(3)))
    assert not torch.equal(compiled(torch.ones(3)), before)
    assert len(compiled.programs) == 1


def test_state_that_is_set_to_what_it_was_changes_nothing(target):
    model = Plain()
    compiled = torchport.compile(model, (torch.ones(3),), target=target)
    [record] = compiled.programs
    model.factor, model.by_name["more"] = float("2.0"), int("1")
    compiled(torch.ones(3))
    assert compiled.programs == [record]
    assert compiled.record is record


def test_tensors_in_containers_that_change_in_place(bring_up):
    model = Plain()
    compiled = bring_up(model, torch.ones(3))
    compiled(torch.ones(3))
    model.shifts[0].mul_(4)
    torch.testing.assert_close(compiled(torch.ones(3)), model(torch.ones(3)))

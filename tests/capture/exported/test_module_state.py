"""Changes in a model's Python state are found and named."""

from collections import OrderedDict, deque

import pytest
import torch
from torch import nn

import torchport
from torchport import capture
from torchport.capture import ModuleState


class Settings:
    def __init__(self):
        self.slope = 0.5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.settings = Settings()
        self.table = {"a": [1, 2]}
        self.queue = deque([1])
        self.names = {"x"}

    def forward(self, x):
        return self.layer(x)


CHANGES = {
    "settings.slope": lambda m: setattr(m.settings, "slope", 2.0),
    "table['a']": lambda m: m.table["a"].append(3),
    "table": lambda m: m.table.update(b=1),
    "queue": lambda m: m.queue.append(2),
    "names": lambda m: m.names.add("y"),
    "layer.weight": lambda m: setattr(m.layer, "weight", nn.Parameter(torch.ones(2, 2))),
    "layer": lambda m: setattr(m, "layer", nn.Linear(2, 2)),
    "layer.training": lambda m: m.layer.eval(),
    "layer._forward_hooks": lambda m: m.layer.register_forward_hook(print),
}


@pytest.mark.parametrize("path", CHANGES)
def test_a_change_is_found_and_named(path):
    model = Model()
    state = ModuleState(model)
    assert state.unchanged()
    assert state.changed() == []
    CHANGES[path](model)
    assert not state.unchanged()
    assert path in state.changed()
    state.forget(state.changed())
    assert state.unchanged()


def test_an_equal_number_is_no_change_and_another_zero_is_one():
    model = Model()
    model.level = 0.0
    state = ModuleState(model)
    model.settings.slope = float("0.5")
    assert state.unchanged()
    model.level = -0.0
    assert state.changed() == ["level"]
    assert not state.unchanged()


@pytest.mark.parametrize("value", [1.0, True, torch.ones(())], ids=str)
def test_what_is_equal_but_of_another_kind_is_another(value):
    model = Model()
    model.level = 1
    state = ModuleState(model)
    model.level = value
    assert not state.unchanged()


def test_another_name_of_the_same_value_is_a_change():
    model = Model()
    state = ModuleState(model)
    model.table["z"] = model.table.pop("a")
    assert not state.unchanged()
    assert state.changed() == ["table['a']"]


def test_what_is_set_back_is_no_change():
    model = Model()
    state = ModuleState(model)
    bias, model.layer.bias = model.layer.bias, None
    assert not state.unchanged()
    model.layer.bias = bias
    assert state.unchanged()


def test_what_holds_itself_is_walked_once():
    model = Model()
    model.table["self"] = model.table
    model.back = OrderedDict(model=[model])
    state = ModuleState(model)
    assert state.unchanged()
    model.table["self"] = 0
    assert state.changed() == ["table['self']"]


def test_a_forward_that_changes_state_is_named(caplog):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.seen = []

        def forward(self, x):
            self.calls += 1
            self.seen.append(x.shape)
            return x + 1

    model = Counts()
    compiled = torchport.compile(model, (torch.ones(2),), target="host")
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "self.calls, self.seen" in said
    assert (model.calls, model.seen) == (0, [])
    model(torch.ones(2))  # changes by the model itself do not make the program stale
    [record] = compiled.programs
    compiled(torch.ones(2))
    assert compiled.programs[0] is record


@pytest.mark.parametrize("model", [nn.LSTM(3, 4), nn.GRU(3, 4, 2, bidirectional=True)])
def test_a_list_that_a_module_makes_of_its_own_weights_is_no_change(model, caplog):
    captured = capture.export(model, (torch.ones(2, 1, 3),))
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert captured.state.unchanged()
    model.weight_ih_l0 = nn.Parameter(model.weight_ih_l0.detach() * 2)
    assert not captured.state.unchanged()


def test_another_weight_in_a_weight_s_place_is_a_change(caplog):
    class Turns(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))
            self.order = [self.first, self.second]

        def forward(self, x):
            self.order = [self.second, self.first]
            return x + self.second

    capture.export(Turns(), (torch.ones(2),))
    assert "its forward changes self.order" in caplog.text

"""Capturing leaves a module's lists and dicts where they are."""

import torch
from torch import nn

from torchport.capture import export


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.settings = {"scales": [1.0, 2.0], "names": ("a", "b")}
        self.inner = nn.ReLU()
        self.inner.settings = self.settings

    def forward(self, x):
        return self.inner(x) * self.settings["scales"][1]


def test_the_same_objects_are_held_afterwards():
    model = Net()
    settings, scales = model.settings, model.settings["scales"]
    export(model, (torch.ones(2),))
    assert model.settings is settings
    assert model.inner.settings is settings
    assert model.settings["scales"] is scales


def test_what_the_model_appends_while_it_is_traced_is_not_left_in_it():
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = []

        def forward(self, x):
            self.calls.append("called")
            return x + 1

    model = Remembers()
    export(model, (torch.ones(2),))
    assert model.calls == []
